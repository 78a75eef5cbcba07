// Long lists: only the rows near the window are in the page. A row's height is known beforehand, so nothing is measured.
import { type RefObject, useLayoutEffect, useState } from "react";

export interface Rows {
  first: number;
  last: number; // exclusive
  height: number; // of all rows, px
}

const margin = 20; // rows beyond both edges, so that scrolling shows no gaps

// itemAt is the last item that begins at a row or before it.
function itemAt(offsets: Uint32Array, row: number): number {
  let low = 0;
  let high = offsets.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle]! <= row) low = middle;
    else high = middle - 1;
  }
  return low;
}

// useRows says which items of a list are near the part of it that can be seen, within its scrolling element or the window. Each is
// one row high, unless offsets says at which row each begins.
export function useRows(
  list: RefObject<HTMLElement | null>,
  count: number,
  rowHeight: number,
  scroller?: RefObject<HTMLElement | null>,
  offsets?: Uint32Array,
): Rows {
  const [range, setRange] = useState({ first: 0, last: 60 });
  useLayoutEffect(() => {
    const target = scroller?.current ?? window;
    let frame = 0;
    const measure = () => {
      frame = 0;
      if (!list.current) return;
      const top = list.current.getBoundingClientRect().top - (scroller?.current?.getBoundingClientRect().top ?? 0);
      const seen = scroller?.current?.clientHeight ?? window.innerHeight;
      const from = Math.max(0, Math.floor(-top / rowHeight) - margin);
      const to = Math.max(from, Math.ceil((seen - top) / rowHeight) + margin);
      const first = offsets ? itemAt(offsets, from) : from;
      const last = offsets ? itemAt(offsets, to) + 1 : to;
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
  }, [list, scroller, rowHeight, count, offsets]);
  return {
    first: Math.min(range.first, count),
    last: Math.min(range.last, count),
    height: (offsets ? offsets[count]! : count) * rowHeight,
  };
}
