import { expect, it } from "vitest";
import { changes, diffLines, hunks, linesOf } from "./diff";

const shown = (a: string, b: string) =>
  diffLines(linesOf(a), linesOf(b)).map(
    (l) => `${{ same: " ", added: "+", removed: "-" }[l.kind]}${l.number}${l.text}`,
  );

it("compares lines", () => {
  expect(shown("a\nb\nc\n", "a\nx\nc\n")).toEqual([" 1a", "-2b", "+2x", " 3c"]);
  expect(shown("", "a\nb\n")).toEqual(["+1a", "+2b"]);
  expect(shown("a\nb\n", "")).toEqual(["-1a", "-2b"]);
  expect(shown("a\n", "a\n")).toEqual([" 1a"]);
  expect(shown("a\nb\nc\nd", "b\nc\ne\nd")).toEqual(["-1a", " 1b", " 2c", "+3e", " 4d"]);
});

it("turns the old text into the new one, whatever they are", () => {
  let seed = 7;
  const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 200; round++) {
    const text = () => Array.from({ length: random(12) }, () => "abc"[random(3)]!);
    const [a, b] = [text(), text()];
    const lines = diffLines(a, b);
    expect(lines.filter((l) => l.kind !== "added").map((l) => l.text)).toEqual(a);
    expect(lines.filter((l) => l.kind !== "removed").map((l) => l.text)).toEqual(b);
  }
});

it("shows changes with what is around them", () => {
  const a = Array.from({ length: 30 }, (_, i) => `line ${i + 1}`);
  const b = a.with(4, "five").with(6, "seven").with(24, "twenty-five");
  const found = hunks(diffLines(a, b));
  expect(found).toHaveLength(2);
  expect([found[0]!.at(0)!.number, found[0]!.at(-1)!.number]).toEqual([2, 10]);
  expect([found[1]!.at(0)!.number, found[1]!.at(-1)!.number]).toEqual([22, 28]);
  expect(new Set(found[0]!.map((l) => `${l.kind}${l.number}`)).size).toBe(found[0]!.length);
});

it("lists the files that differ", () => {
  const file = (path: string, ...content: number[]) => ({ path, content: new Uint8Array(content) });
  const found = changes(
    [file("same", 65), file("gone", 65), file("text", 65), file("picture", 0, 1)],
    [file("same", 65), file("new", 66), file("text", 66), file("picture", 0, 2)],
  );
  expect(found.map((c) => `${c.path} ${c.kind} ${c.lines?.length}`)).toEqual([
    "gone removed 1",
    "new added 1",
    "picture changed undefined",
    "text changed 2",
  ]);
});
