import { expect, it } from "vitest";
import { diffLines } from "~/lib/diff";
import { coloursOf } from "./diff";

it("colours each line as it is in its own text", () => {
  const lines = diffLines(["/*", "a = 1", "*/", "b = 1"], ["a = 1", "b = 2"]);
  const colours = coloursOf("main.tf", lines);
  const shown = lines.map(
    (l) =>
      `${l.kind} ${l.text}: ${colours(l)
        .map((p) => p.kind || "plain")
        .join(" ")}`,
  );
  expect(shown).toEqual([
    "removed /*: comment",
    "same a = 1: name plain literal",
    "removed */: comment",
    "removed b = 1: name plain literal",
    "added b = 2: name plain literal",
  ]);
});
