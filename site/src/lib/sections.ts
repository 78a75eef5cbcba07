// A job's log in sections, one for each stage, with its duration.
import type { JobLog } from "~/api/types";

export interface Section {
  stage: string;
  first: number; // index of its first line
  count: number;
  from: number; // ms since the epoch
  to: number | undefined; // undefined while it runs
  failed: boolean;
}

export function sections(lines: JobLog[], ended: string | null | undefined): Section[] {
  const out: Section[] = [];
  let current: Section | undefined;
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i]!;
    if (!current || current.stage !== line.stage) {
      const from = Date.parse(line.created_at);
      if (current) current.to = from;
      current = { stage: line.stage, first: i, count: 0, from, to: undefined, failed: false };
      out.push(current);
    }
    current.count++;
    if (line.log_level === "error") current.failed = true;
  }
  if (current && ended) current.to = Math.max(current.from, Date.parse(ended));
  return out;
}

export type Row = { section: Section; index: number } | { line: number };

// rows flattens sections into the rows of a list, without folded lines and lines that do not match.
export function rows(all: Section[], folded: ReadonlySet<number>, matches?: (index: number) => boolean): Row[] {
  const out: Row[] = [];
  all.forEach((section, index) => {
    const lines: Row[] = [];
    if (!folded.has(index)) {
      for (let i = section.first; i < section.first + section.count; i++)
        if (!matches || matches(i)) lines.push({ line: i });
    }
    if (!matches || lines.length > 0) out.push({ section, index });
    for (const line of lines) out.push(line);
  });
  return out;
}
