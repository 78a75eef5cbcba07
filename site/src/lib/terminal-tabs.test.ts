import { expect, it } from "vitest";
import { newID } from "./terminal-session";
import { all, chosen, closed, current, most, opened, read, type Tabs, write } from "./terminal-tabs";

const id = (n: number) => `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
const [a, b, c, d] = [id(1), id(2), id(3), id(4)];
const fresh = () => id(99);

it("opens terminals in tabs and side by side, and moves the focus when they close", () => {
  let t = read("", fresh);
  expect(t).toEqual({ tabs: [[id(99)]], active: id(99) });
  t = read(`?reconnect=${a}`, fresh);
  t = opened(t, b, "tab");
  expect(t).toEqual({ tabs: [[a], [b]], active: b });
  t = opened(chosen(t, a), c, "beside");
  expect(t).toEqual({ tabs: [[a, c], [b]], active: c });
  expect(current(t)).toEqual([a, c]);
  t = opened(t, d, "tab");
  expect(t.tabs).toEqual([[a, c], [d], [b]]);
  expect(chosen(t, d)).toBe(t); // nothing changes
  expect(chosen(t, id(5))).toBe(t);
  expect(closed(t, d)).toEqual({ tabs: [[a, c], [b]], active: b });
  expect(closed(chosen(t, a), a)).toEqual({ tabs: [[c], [d], [b]], active: c });
  expect(closed(chosen(t, c), c).active).toBe(a); // beside it, not in the next tab
  expect(closed(chosen(t, b), b).active).toBe(d);
  expect(closed(t, a)).toEqual({ tabs: [[c], [d], [b]], active: d });
  const last = { tabs: [[a]], active: a };
  expect(closed(last, a)).toBe(last);
});

it("keeps them in the address", () => {
  const t: Tabs = { tabs: [[a, c], [b]], active: c };
  const params = new URLSearchParams("command=htop");
  write(t, params);
  expect(params.get("command")).toBe("htop");
  expect(params.toString()).not.toContain("%"); // people copy and read it
  expect(read(`?${params}`, fresh)).toEqual(t);
  write({ tabs: [[a]], active: a }, params);
  expect(params.toString()).toBe(`command=htop&reconnect=${a}`);
});

it.each([
  [`reconnect=${a}&tabs=${b}.${c}`, [[a], [b], [c]], a],
  [`tabs=${a}_${b}`, [[a, b]], a],
  [`reconnect=${b}&tabs=${a}_${b}.${b}.${a}`, [[a, b]], b], // one place each
  [`reconnect=x&tabs=.._.${a}_.<b>_${b}`, [[a], [b]], a],
  ["reconnect=../../etc&tabs=%00", [[id(99)]], id(99)],
  [`reconnect=${a.toUpperCase()}`.replace("4000", "400G"), [[id(99)]], id(99)],
])("leaves out what is no session: %s", (search, tabs, active) => {
  expect(read(`?${search}`, fresh)).toEqual({ tabs, active });
});

it("bounds the terminals of a page", () => {
  const many = Array.from({ length: 100 }, (_, n) => id(n));
  const t = read(`?tabs=${many.join(".")}`, fresh);
  expect(all(t)).toHaveLength(most);
  expect(opened(t, id(200), "tab")).toBe(t);
  expect(opened(t, id(200), "beside")).toBe(t);
  const beside = read(`?reconnect=${id(300)}&tabs=${many.join("_")}`, fresh);
  expect(all(beside).length).toBeLessThanOrEqual(most);
  expect(all(beside)).toContain(beside.active);
});

it("makes ids that it takes back", () => {
  const made = newID();
  expect(read(`?reconnect=${made}`, fresh).active).toBe(made);
});
