// How the files of two template versions differ, line by line.
import type { File } from "./tar";

export interface Line {
  kind: "same" | "added" | "removed";
  text: string;
  number: number; // in the new text, or in the old one if it was removed
}

export interface Change {
  path: string;
  kind: "added" | "removed" | "changed";
  lines: Line[] | undefined; // undefined: the file is not text
}

const around = 3; // unchanged lines shown beside changed ones
const mostCells = 4_000_000; // of the table that compares two texts: larger ones are shown as replaced

// textOf is a file's text; undefined if it is binary.
export function textOf(content: Uint8Array): string | undefined {
  if (content.subarray(0, 4096).includes(0)) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
  } catch {
    return undefined;
  }
}

export const linesOf = (text: string) => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));

// diffLines compares two texts by their longest common subsequence of lines.
export function diffLines(a: string[], b: string[]): Line[] {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const out: Line[] = b.slice(0, start).map((text, i) => ({ kind: "same", text, number: i + 1 }));
  out.push(...middle(a.slice(start, a.length - end), b.slice(start, b.length - end), start));
  for (let i = b.length - end; i < b.length; i++) out.push({ kind: "same", text: b[i]!, number: i + 1 });
  return out;
}

function middle(a: string[], b: string[], offset: number): Line[] {
  const removed = (i: number): Line => ({ kind: "removed", text: a[i]!, number: offset + i + 1 });
  const added = (j: number): Line => ({ kind: "added", text: b[j]!, number: offset + j + 1 });
  const [n, m] = [a.length, b.length];
  if ((n + 1) * (m + 1) > mostCells) return [...a.map((_, i) => removed(i)), ...b.map((_, j) => added(j))];
  // common[i, j] is how many lines the texts from i and from j on have in common.
  const width = m + 1;
  const common = new Uint32Array((n + 1) * width);
  for (let i = n - 1; i >= 0; i--)
    for (let j = m - 1; j >= 0; j--)
      common[i * width + j] =
        a[i] === b[j]
          ? common[(i + 1) * width + j + 1]! + 1
          : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
  const out: Line[] = [];
  let [i, j] = [0, 0];
  while (i < n || j < m) {
    if (i < n && j < m && a[i] === b[j]) {
      out.push({ kind: "same", text: b[j]!, number: offset + j + 1 });
      i++;
      j++;
    } else if (j >= m || (i < n && common[(i + 1) * width + j]! >= common[i * width + j + 1]!)) out.push(removed(i++));
    else out.push(added(j++));
  }
  return out;
}

// hunks are the changed lines with what is around them.
export function hunks(lines: Line[]): Line[][] {
  const out: Line[][] = [];
  let last = -1; // the last line shown
  for (const [i, line] of lines.entries()) {
    if (line.kind === "same") continue;
    const from = Math.max(last + 1, i - around);
    if (from > last + 1 || out.length === 0) out.push([]);
    const to = Math.min(lines.length - 1, i + around);
    out.at(-1)!.push(...lines.slice(from, to + 1));
    last = Math.max(last, to);
  }
  return out;
}

const equal = (a: Uint8Array, b: Uint8Array) => a.length === b.length && a.every((byte, i) => byte === b[i]);

// changes lists the files that differ, by path.
export function changes(before: File[], after: File[]): Change[] {
  const old = new Map(before.map((f) => [f.path, f.content]));
  const current = new Map(after.map((f) => [f.path, f.content]));
  return [...new Set([...old.keys(), ...current.keys()])].sort().flatMap((path) => {
    const [a, b] = [old.get(path), current.get(path)];
    if (a && b && equal(a, b)) return [];
    const [textA, textB] = [a ? textOf(a) : "", b ? textOf(b) : ""];
    const lines = textA === undefined || textB === undefined ? undefined : diffLines(linesOf(textA), linesOf(textB));
    return [{ path, kind: !a ? "added" : !b ? "removed" : "changed", lines } satisfies Change];
  });
}
