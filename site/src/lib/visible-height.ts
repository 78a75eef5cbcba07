import { useCallback, useEffect, useSyncExternalStore } from "react";

// useVisibleHeight returns the height in px that a phone's keyboard leaves of the window, and undefined where the
// window's own height holds: without such a keyboard, and while the user has zoomed in.
export function useVisibleHeight(phone: boolean): number | undefined {
  const subscribe = useCallback((listener: () => void) => {
    const view = window.visualViewport;
    view?.addEventListener("resize", listener);
    return () => view?.removeEventListener("resize", listener);
  }, []);
  const read = () => {
    const view = window.visualViewport;
    return phone && view && view.scale === 1 && view.height < window.innerHeight ? view.height : undefined;
  };
  const height = useSyncExternalStore(subscribe, read);
  useEffect(() => {
    if (height !== undefined) scrollTo(0, 0); // browsers scroll to what has the focus
  }, [height]);
  return height;
}
