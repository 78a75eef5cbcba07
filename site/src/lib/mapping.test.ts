import { expect, it } from "vitest";
import { mappingOf, nothing, rowsOf } from "./mapping";

it("makes a row of every pair and a mapping of the rows", () => {
  const mapping = { eng: ["a", "b"], ops: ["a"], guests: [] };
  const rows = rowsOf(mapping);
  expect(rows).toEqual([
    { id: 0, given: "eng", gets: "a" },
    { id: 1, given: "eng", gets: "b" },
    { id: 2, given: "ops", gets: "a" },
    { id: 3, given: "guests", gets: nothing },
  ]);
  expect(mappingOf(rows)).toEqual(mapping);
  expect(rowsOf({})).toEqual([]);
  expect(mappingOf([])).toEqual({});
});

it("collects rows of one value wherever they are, and counts equal rows once", () => {
  expect(
    mappingOf([
      { given: "eng", gets: "a" },
      { given: "ops", gets: "c" },
      { given: "eng", gets: "b" },
      { given: "eng", gets: "a" },
      { given: "eng", gets: nothing },
    ]),
  ).toEqual({ eng: ["a", "b"], ops: ["c"] });
});

it("keeps values of claims as they are", () => {
  for (const given of ["__proto__", "constructor", " padded ", "CN=ops,OU=west", "1"]) {
    const mapping = mappingOf([{ given, gets: "a" }]);
    expect(Object.entries(mapping)).toEqual([[given, ["a"]]]);
    expect(rowsOf(JSON.parse(JSON.stringify(mapping)) as typeof mapping)).toEqual([{ id: 0, given, gets: "a" }]);
  }
});
