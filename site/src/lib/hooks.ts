import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";

// useNow returns the time, updated every so many ms while running.
export function useNow(every: number, running = true): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every, running]);
  return now;
}

// Who is told of the page's title.
let told: (title: string) => void = () => {};

export function useTitle(title: string) {
  useEffect(() => {
    document.title = title ? `${title} · codermesh` : "codermesh";
    told(title);
  }, [title]);
}

// useAnnounced returns the title of the page to which the user went, for screen readers: they say the first page's, but
// notice no page that a link puts in its place.
export function useAnnounced(path: string): string {
  const first = useRef(path);
  const [title, setTitle] = useState("");
  useEffect(() => {
    told = (next) => location.pathname !== first.current && setTitle(next);
    return () => {
      told = () => {};
    };
  }, []);
  useEffect(() => {
    if (path !== first.current) first.current = "";
  }, [path]);
  return title;
}

// useDebounced returns a value once it has not changed for so many ms.
export function useDebounced<T>(value: T, ms: number): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return rested;
}

// useMedia reports whether a media query matches.
export function useMedia(query: string): boolean {
  const subscribe = useCallback(
    (listener: () => void) => {
      const media = matchMedia(query);
      media.addEventListener("change", listener);
      return () => media.removeEventListener("change", listener);
    },
    [query],
  );
  return useSyncExternalStore(subscribe, () => matchMedia(query).matches);
}
