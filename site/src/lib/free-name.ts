// Names that are suggested: those of a server have at most 32 characters, and differ in more than their case.
const limit = 32;

const fitted = (text: string, length: number) => text.slice(0, length).replace(/-+$/, "");

// nameFrom makes a name of a text, such as that of a folder, or "" of one without letters and digits.
export const nameFrom = (text: string) =>
  fitted(
    text
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, "-")
      .replace(/^-/, ""),
    limit,
  );

// freeName returns the name, or the first of name-2, name-3 and so on that is not taken.
export function freeName(name: string, taken: Iterable<string>): string {
  const used = new Set([...taken].map((t) => t.toLowerCase()));
  let free = name;
  for (let n = 2; used.has(free.toLowerCase()); n++) {
    const end = `-${n}`;
    free = fitted(name, limit - end.length) + end;
  }
  return free;
}
