// How the command palette finds entries.

export interface Entry {
  key: string;
  group: string;
  label: string;
  hint?: string;
  run: () => void;
  asks?: boolean; // the user must confirm it
}

// rank says how well a text answers a search: 0 is best, undefined not at all. Every word must occur; those at the
// beginning of the text or of a word in it are better.
export function rank(text: string, search: string): number | undefined {
  const lower = text.toLowerCase();
  let sum = 0;
  for (const word of search.toLowerCase().split(/\s+/).filter(Boolean)) {
    const at = lower.indexOf(word);
    if (at < 0) return undefined;
    sum += at === 0 ? 0 : /[^\p{L}\p{N}]/u.test(lower[at - 1]!) ? 1 : 2;
  }
  return sum;
}

const most = 10; // entries of a group

// found lists the entries that answer a search: groups in their order, but that of an entry whose label is the search
// first; in each group the best first.
export function found(entries: Entry[], search: string): Entry[] {
  const name = search.trim().toLowerCase();
  const answers = entries
    .map((entry) => ({
      entry,
      rank: entry.label.toLowerCase() === name ? -1 : rank(`${entry.label} ${entry.hint ?? ""}`, search),
    }))
    .filter((e): e is { entry: Entry; rank: number } => e.rank !== undefined)
    .toSorted((a, b) => a.rank - b.rank);
  const order = [...new Set(entries.map((e) => e.group))];
  const named = (group: string) => answers.some((e) => e.entry.group === group && e.rank < 0);
  return order
    .toSorted((a, b) => Number(named(b)) - Number(named(a)))
    .flatMap((group) =>
      answers
        .filter((e) => e.entry.group === group)
        .slice(0, most)
        .map((e) => e.entry),
    );
}
