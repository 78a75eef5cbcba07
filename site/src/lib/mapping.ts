// The rows in which pages show the mapping of sync.

export interface MappingRow {
  id: number; // of the row on the page
  given: string; // a value of the claim
  gets: string; // an id or a name, or nothing
}

// nothing is what a row says whose value gives nothing, unlike a value without a row. No id and no name is like it.
export const nothing = "(nothing)";

// rowsOf makes a row of every pair of a value and what it gives.
export const rowsOf = (mapping: Record<string, string[]>): MappingRow[] =>
  Object.entries(mapping)
    .flatMap(([given, all]) => (all.length > 0 ? all : [nothing]).map((gets) => ({ given, gets })))
    .map((row, id) => ({ id, ...row }));

// mappingOf is the reverse of rowsOf. Equal rows count once.
export function mappingOf(rows: Pick<MappingRow, "given" | "gets">[]): Record<string, string[]> {
  const mapping = new Map<string, Set<string>>();
  for (const { given, gets } of rows) {
    const all = mapping.get(given) ?? new Set<string>();
    if (gets !== nothing) all.add(gets);
    mapping.set(given, all);
  }
  return Object.fromEntries([...mapping].map(([given, all]) => [given, [...all]]));
}
