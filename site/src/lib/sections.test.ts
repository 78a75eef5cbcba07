import { expect, it } from "vitest";
import type { JobLog } from "~/api/types";
import { rows, sections } from "./sections";

const line = (id: number, stage: string, at: number, level: JobLog["log_level"] = "info"): JobLog => ({
  id,
  stage,
  created_at: new Date(at).toISOString(),
  log_level: level,
  log_source: "provisioner",
  output: `line ${id}`,
});
const log = [
  line(1, "Setting up", 0),
  line(2, "Planning", 1000),
  line(3, "Planning", 2000, "error"),
  line(4, "Storing", 5000),
];

it("divides a log by stage, with durations", () => {
  const got = sections(log, new Date(6000).toISOString());
  expect(got.map((s) => [s.stage, s.first, s.count, s.to! - s.from, s.failed])).toEqual([
    ["Setting up", 0, 1, 1000, false],
    ["Planning", 1, 2, 4000, true],
    ["Storing", 3, 1, 1000, false],
  ]);
  expect(sections(log, null).at(-1)?.to).toBeUndefined();
  expect(sections([], null)).toEqual([]);
});

it("leaves out folded lines and those that do not match", () => {
  const all = sections(log, null);
  const shown = (folded: number[], matches?: (i: number) => boolean) =>
    rows(all, new Set(folded), matches).map((r) => ("line" in r ? r.line : r.section.stage));
  expect(shown([])).toEqual(["Setting up", 0, "Planning", 1, 2, "Storing", 3]);
  expect(shown([1])).toEqual(["Setting up", 0, "Planning", "Storing", 3]);
  expect(shown([], (i) => i === 2)).toEqual(["Planning", 2]);
});
