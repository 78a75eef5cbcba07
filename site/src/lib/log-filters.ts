// The filters of the audit log and the connection log, which are terms of their searches: "action:delete username:ada".

// termsOf splits a search into its terms, as the server does: quotes hold words together.
export const termsOf = (search: string): string[] => search.match(/(?:[^\s"]|"[^"]*"?)+/g) ?? [];

const keyOf = (term: string) => /^([a-z_]+):/i.exec(term)?.[1]?.toLowerCase() ?? "";

// valueOf is what a search asks of a key; "" if it does not name the key.
export function valueOf(search: string, key: string): string {
  const term = termsOf(search).find((t) => keyOf(t) === key);
  return term ? term.slice(key.length + 1).replaceAll('"', "") : "";
}

// withTerm is the search with another value of a key, "" for none.
export function withTerm(search: string, key: string, value: string): string {
  const rest = termsOf(search).filter((t) => keyOf(t) !== key);
  const plain = value.replaceAll('"', "");
  return [...rest, plain && `${key}:${/\s/.test(plain) ? `"${plain}"` : plain}`].filter(Boolean).join(" ");
}

// chipsOf are the terms that no filter shows: what each says, and the search without it.
export function chipsOf(search: string, shown: (key: string, value: string) => boolean) {
  const terms = termsOf(search);
  return terms.flatMap((term, i) => {
    const key = keyOf(term);
    const value = (key ? term.slice(key.length + 1) : term).replaceAll('"', "");
    if (key && shown(key, value)) return [];
    return [{ key: key || "name", value, without: terms.filter((_, other) => other !== i).join(" ") }];
  });
}

// periods are the choices of the first day, counted back from now, in ms: days in UTC, as the server counts them.
export const periodsOf = (now: number): [value: string, label: string][] => {
  const back = (days: number) => new Date(now - days * 86_400_000).toISOString().slice(0, 10);
  return [
    ["", "At any time"],
    [back(0), "Today"],
    [back(7), "Last 7 days"],
    [back(30), "Last 30 days"],
    [back(90), "Last 90 days"],
  ];
};
