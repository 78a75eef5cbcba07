import { expect, it } from "vitest";
import { positionOf, positionsOf, problemsOf } from "./diagnostic";

it.each([
  ["main.tf:12: Unsupported argument: An argument named x is not expected", { file: "main.tf", line: 12 }],
  ["terraform plan: modules/a-b/main.tf.json:3: bad", { file: "modules/a-b/main.tf.json", line: 3 }],
  ["Error: main.tf:4: Invalid expression", { file: "main.tf", line: 4 }],
  ["could not reach 10.0.0.1:80: refused", undefined],
  ["the text main.tf:4: is in a sentence", undefined],
  ["main.tf:12", undefined],
  ["main.tf: 12: no", undefined],
])("%s", (text, want) => {
  if (want) expect(positionOf(text)).toMatchObject(want);
  else expect(positionOf(text)).toBeUndefined();
});

it("lists every error of a text, with messages of several lines", () => {
  expect(positionsOf("main.tf:1: One: first\nline two\n\na/b.tf:22: Two\nand 3 more errors, see the log")).toEqual([
    { file: "main.tf", line: 1, message: "One: first\nline two" },
    { file: "a/b.tf", line: 22, message: "Two\nand 3 more errors, see the log" },
  ]);
  expect(positionsOf("")).toEqual([]);
});

it("adds what the error knows to what the log knows, and repeats nothing", () => {
  const log = [
    "Initializing",
    "Error: main.tf:1: One",
    "Error: main.tf:1: Other",
    "Error: main.tf:1: One",
    "Error: x: No place",
  ];
  expect(problemsOf("main.tf:1: One\nin two lines\nmain.tf:9: No place", log)).toEqual([
    { file: "main.tf", line: 1, message: "One\nin two lines" },
    { file: "main.tf", line: 1, message: "Other" },
    { file: "main.tf", line: 9, message: "No place" },
  ]);
  expect(problemsOf("main.tf:1: Shorter", ["Error: main.tf:1: Longer"])).toHaveLength(1);
  expect(problemsOf("could not reach the server", [])).toEqual([]);
});
