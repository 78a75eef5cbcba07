// The order of the list of workspaces.
import type { Workspace } from "~/api/types";

export interface Order {
  key: string;
  label: string;
  compare: (a: Workspace, b: Workspace) => number;
}

const byText = (text: (w: Workspace) => string) => (a: Workspace, b: Workspace) =>
  text(a).localeCompare(text(b), "en", { numeric: true });
const byName = byText((w) => w.name);
const newest = (at: (w: Workspace) => string) => (a: Workspace, b: Workspace) => Date.parse(at(b)) - Date.parse(at(a));

// The server's own order, running workspaces first, needs no entry here.
export const orders: Order[] = [
  { key: "name", label: "Name", compare: byName },
  { key: "used", label: "Last used", compare: newest((w) => w.last_used_at) },
  { key: "created", label: "Newest", compare: newest((w) => w.created_at) },
  { key: "status", label: "Status", compare: byText((w) => w.latest_build.status) },
  { key: "owner", label: "Owner", compare: byText((w) => w.owner_name) },
  { key: "template", label: "Template", compare: byText((w) => w.template_display_name || w.template_name) },
];

// sorted orders workspaces, and those that are equal in it by name.
export function sorted(list: Workspace[], key: string): Workspace[] {
  const order = orders.find((o) => o.key === key);
  if (!order) return list;
  return list.toSorted((a, b) => order.compare(a, b) || byName(a, b));
}
