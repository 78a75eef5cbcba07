// How many rows a line of a log takes where long ones are wrapped, without asking the browser for each: in a font whose letters are
// equally wide a line breaks after so many columns.
import { type RefObject, useLayoutEffect, useState } from "react";
import { ansi } from "./ansi";

// Every tab goes on to the next multiple of it. It is the browser's own for tab-size.
const tab = 8;

// columnsOf counts the columns of a line as it is shown: without its colours, letters of the East and pictures for two.
export function columnsOf(text: string): number {
  // eslint-disable-next-line no-control-regex
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let n = 0;
  for (const piece of ansi(text)) {
    for (const char of piece.text) {
      const code = char.codePointAt(0)!;
      n += char === "\t" ? tab - (n % tab) : code >= 0x1100 && /\p{M}|\p{Cf}/u.test(char) ? 0 : code >= 0x1100 ? 2 : 1;
    }
  }
  return n;
}

// rowsOf is how many rows so many columns fill when a row has room for `columns`.
const rowsOf = (n: number, columns: number) => Math.max(1, Math.ceil(n / columns));

// offsets says at which row each item begins; its last element is the number of all rows. widths are in columns.
export function offsets(count: number, width: (i: number) => number, columns: number): Uint32Array {
  const out = new Uint32Array(count + 1);
  for (let i = 0; i < count; i++) out[i + 1] = out[i]! + rowsOf(width(i), columns);
  return out;
}

// useColumns says for how many letters an element of a fixed-width font has room beside `beside` px of other things; 0 before it is known.
export function useColumns(scroller: RefObject<HTMLElement | null>, beside: number): number {
  const [columns, setColumns] = useState(0);
  useLayoutEffect(() => {
    const element = scroller.current;
    const context = document.createElement("canvas").getContext("2d");
    if (!element || !context) return;
    const measure = () => {
      const { fontSize, fontFamily } = getComputedStyle(element);
      context.font = `${fontSize} ${fontFamily}`;
      setColumns(
        Math.max(10, Math.floor((element.clientWidth - beside) / (context.measureText("0".repeat(100)).width / 100))),
      );
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [scroller, beside]);
  return columns;
}
