// How a page shows the values of a difference in the audit log.

const id = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

// shown is a value as readers call it: names are those of what it mentions by id.
export function shown(value: unknown, names: Record<string, string> = {}): string {
  if (value === null || value === undefined || value === "") return "nothing";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value.replace(id, (found) => names[found] ?? found);
  if (Array.isArray(value)) return value.length > 0 ? value.map((v) => shown(v, names)).join(", ") : "nothing";
  if (typeof value !== "object") return String(value);
  const fields = Object.entries(value);
  if (fields.length === 0) return "nothing";
  return fields.map(([key, v]) => `${shown(key, names)}: ${shown(v, names)}`).join(", ");
}
