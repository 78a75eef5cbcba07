import { Badge } from "./badge";

const Tag = ({ name, value }: { name: string; value: string }) => (
  <Badge>
    <span className="font-mono">
      {name}={value}
    </span>
  </Badge>
);

export function Tags({ of, none = "untagged" }: { of: Record<string, string>; none?: string }) {
  const all = Object.entries(of).filter(
    ([name, value]) => value !== "" && !(name === "scope" && value === "organization"),
  );
  return all.length === 0 ? (
    <span className="text-muted">{none}</span>
  ) : (
    <span className="inline-flex flex-wrap gap-1">
      {all.map(([k, v]) => (
        <Tag key={k} name={k} value={v} />
      ))}
    </span>
  );
}
