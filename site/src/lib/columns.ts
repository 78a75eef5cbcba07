// The columns of the list of workspaces beside the name and the buttons, in their order.

export interface Column {
  key: string;
  label: string;
  width: string;
  wide?: boolean; // only on wide pages
}

export const columns: Column[] = [
  { key: "status", label: "Status", width: "minmax(0,3fr)" },
  { key: "path", label: "Path and latency", width: "8rem" },
  { key: "version", label: "Template version", width: "8rem", wide: true },
  { key: "created", label: "Created", width: "8rem", wide: true },
  { key: "used", label: "Last used", width: "7rem", wide: true },
  { key: "apps", label: "Terminal, editor and apps", width: "8rem" },
];

export const defaultColumns = ["status", "path", "used", "apps"];

// tracks are the widths of a row's columns, as a grid takes them.
export const tracks = (chosen: readonly string[], wide: boolean) =>
  [
    "minmax(0,3fr)",
    ...columns.filter((c) => chosen.includes(c.key) && (wide || !c.wide)).map((c) => c.width),
    "9rem",
  ].join(" ");
