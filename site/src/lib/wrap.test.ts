import { describe, expect, it } from "vitest";
import { columnsOf, offsets } from "./wrap";

describe("wrapped lines", () => {
  it.each([
    ["", 0],
    ["abc", 3],
    ["a\tb", 9],
    ["\x1b[31mred\x1b[0m", 3],
    ["é", 1],
    ["漢字", 4],
    ["🙂", 2],
    ["e\u0301", 2],
    ["50%\r100%", 4],
  ])("%j has its columns", (text, want) => expect(columnsOf(text)).toBe(want));

  it("take a row for each full or begun one", () => {
    const widths = [0, 10, 11, 25];
    expect([...offsets(4, (i) => widths[i]!, 10)]).toEqual([0, 1, 2, 4, 7]);
    expect([...offsets(0, () => 0, 10)]).toEqual([0]);
  });
});
