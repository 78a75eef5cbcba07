// The positions of an import's errors in its template: "main.tf:12: summary: detail", as the provisioner writes them.

export interface Position {
  file: string;
  line: number;
  message: string;
}

// What comes before the position says what was done, such as "Error: " or "terraform plan: ".
const position = /^(?:[A-Za-z][\w ]*: )*((?:[\w.@-]+\/)*[\w.@-]+\.tf(?:\.json|vars)?):(\d+):\s*(.*)$/;

// positionsOf lists the errors in a text. What follows the line of one, until the next, belongs to its message.
export function positionsOf(text: string): Position[] {
  const found: Position[] = [];
  for (const line of text.split("\n")) {
    const match = position.exec(line);
    const last = found.at(-1);
    if (match) found.push({ file: match[1]!, line: Number(match[2]), message: match[3]! });
    else if (last) last.message += `\n${line}`;
  }
  return found.map((p) => ({ ...p, message: p.message.trim() }));
}

export const positionOf = (text: string): Position | undefined => positionsOf(text)[0];

const samePlace = (a: Position) => (b: Position) => a.file === b.file && a.line === b.line;

// problemsOf lists the errors of a failed import. Its log has all of them; its error has the first few, with messages
// of several lines, and places that the log does not know.
export function problemsOf(error: string, log: readonly string[]): Position[] {
  const found: Position[] = [];
  for (const p of log.flatMap(positionsOf))
    if (!found.some((f) => samePlace(p)(f) && f.message === p.message)) found.push(p);
  for (const p of positionsOf(error)) {
    const same = found.findIndex((f) => samePlace(p)(f) && p.message.startsWith(f.message));
    if (same >= 0) found[same] = p;
    else if (!found.some(samePlace(p))) found.push(p);
  }
  return found;
}
