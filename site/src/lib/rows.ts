// Long lists: only the rows near the window are in the page. Rows are equally high, so nothing is measured.
import { type RefObject, useLayoutEffect, useState } from "react";

export interface Rows {
  first: number;
  last: number; // exclusive
  height: number; // of all rows, px
}

const margin = 20; // rows beyond both edges, so that scrolling shows no gaps

// useRows says which rows of a list are near the part of it that can be seen, within its scrolling element or the window.
export function useRows(list: RefObject<HTMLElement | null>, count: number, rowHeight: number, scroller?: RefObject<HTMLElement | null>): Rows {
  const [range, setRange] = useState({ first: 0, last: 60 });
  useLayoutEffect(() => {
    const target = scroller?.current ?? window;
    let frame = 0;
    const measure = () => {
      frame = 0;
      if (!list.current) return;
      const top = list.current.getBoundingClientRect().top - (scroller?.current?.getBoundingClientRect().top ?? 0);
      const seen = scroller?.current?.clientHeight ?? window.innerHeight;
      const first = Math.max(0, Math.floor(-top / rowHeight) - margin);
      const last = Math.max(first, Math.ceil((seen - top) / rowHeight) + margin);
      setRange((old) => (old.first === first && old.last === last ? old : { first, last }));
    };
    const soon = () => {
      frame ||= requestAnimationFrame(measure);
    };
    measure();
    target.addEventListener("scroll", soon, { passive: true });
    const observer = new ResizeObserver(soon);
    observer.observe(scroller?.current ?? document.documentElement);
    return () => {
      cancelAnimationFrame(frame);
      target.removeEventListener("scroll", soon);
      observer.disconnect();
    };
  }, [list, scroller, rowHeight, count]);
  return { first: Math.min(range.first, count), last: Math.min(range.last, count), height: count * rowHeight };
}
