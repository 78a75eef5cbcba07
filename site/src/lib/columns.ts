// The columns of the list of workspaces beside the name and the buttons, in their order.

export interface Column {
  key: string;
  label: string; // where columns are chosen
  heading: string;
  width: string;
  wide?: boolean; // only on wide pages
}

export const columns: Column[] = [
  { key: "status", label: "Status", width: "minmax(0,4fr)", heading: "Status" },
  { key: "path", label: "Path and latency", width: "8rem", heading: "Path" },
  { key: "version", label: "Template version", width: "minmax(0,2fr)", heading: "Version", wide: true },
  { key: "created", label: "Created", width: "6.5rem", heading: "Created", wide: true },
  { key: "used", label: "Last used", width: "6.5rem", heading: "Last used", wide: true },
  { key: "apps", label: "Terminal, editor and apps", width: "7rem", heading: "Open" },
];

export const defaultColumns = ["status", "path", "used", "apps"];

// tracks are the widths of a row's columns, as a grid takes them.
export const tracks = (chosen: readonly string[], wide: boolean) =>
  [
    "minmax(0,7fr)",
    ...columns.filter((c) => chosen.includes(c.key) && (wide || !c.wide)).map((c) => c.width),
    "9.5rem",
  ].join(" ");
