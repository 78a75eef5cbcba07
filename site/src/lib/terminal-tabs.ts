// The terminals of a page, as its address keeps them: "reconnect" is the session with the focus, and "tabs" lists all,
// if there are several. A dot separates tabs, and a low line the terminals side by side in one. An address that came
// from elsewhere can hold anything: what is not a session is left out.
import { isID } from "./terminal-session";

export interface Tabs {
  tabs: string[][]; // the sessions of each tab, from left to right; none is empty
  active: string;
}

export const most = 16; // terminals of a page; a workspace can have 64

export const all = (t: Tabs) => t.tabs.flat();

// current is the tab with the focus.
export const current = (t: Tabs) => t.tabs.find((tab) => tab.includes(t.active)) ?? [];

export function read(search: string, fresh: () => string): Tabs {
  const params = new URLSearchParams(search);
  const named = params.get("reconnect");
  const seen = new Set(isID(named) ? [named] : []);
  let placed = false; // the one with the focus
  const take = (id: string) => {
    if (!isID(id)) return false;
    if (id === named && !placed) return (placed = true);
    return !seen.has(id) && seen.size < most && seen.add(id) !== undefined;
  };
  const tabs = (params.get("tabs") ?? "")
    .split(".")
    .map((tab) => tab.split("_").filter(take))
    .filter((tab) => tab.length > 0);
  const active = isID(named) ? named : (tabs[0]?.[0] ?? fresh());
  return {
    tabs: tabs.some((tab) => tab.includes(active)) ? tabs : [[active], ...tabs],
    active,
  };
}

// write puts the terminals into the parameters of an address.
export function write(t: Tabs, params: URLSearchParams) {
  params.set("reconnect", t.active);
  if (all(t).length > 1) params.set("tabs", t.tabs.map((tab) => tab.join("_")).join("."));
  else params.delete("tabs");
}

// opened adds a terminal behind the current one, in a tab of its own or beside it, and gives it the focus.
export function opened(t: Tabs, id: string, where: "tab" | "beside"): Tabs {
  if (all(t).length >= most) return t;
  const tabs = t.tabs.flatMap((tab) => {
    const at = tab.indexOf(t.active);
    if (at < 0) return [tab];
    return where === "tab" ? [tab, [id]] : [tab.toSpliced(at + 1, 0, id)];
  });
  return { tabs, active: id };
}

export const chosen = (t: Tabs, id: string): Tabs =>
  id === t.active || !all(t).includes(id) ? t : { ...t, active: id };

// closed leaves a terminal out. The focus goes to its neighbour in the same tab, or else in the next. The last terminal
// stays.
export function closed(t: Tabs, id: string): Tabs {
  const ids = all(t);
  if (ids.length < 2 || !ids.includes(id)) return t;
  const tabs = t.tabs.map((tab) => tab.filter((other) => other !== id));
  if (id !== t.active) return { tabs: tabs.filter((tab) => tab.length > 0), active: t.active };
  const tab = current(t);
  const near = tab.length > 1 ? tab : ids;
  const at = near.indexOf(id);
  return {
    tabs: tabs.filter((tab) => tab.length > 0),
    active: (near[at + 1] ?? near[at - 1])!,
  };
}
