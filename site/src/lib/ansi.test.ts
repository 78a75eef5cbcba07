import { describe, expect, it } from "vitest";
import { ansi } from "./ansi";

const esc = "\x1b";

describe("ansi", () => {
  it.each([
    ["plain text", [{ text: "plain text", look: "" }]],
    ["", []],
    [
      `${esc}[31mred${esc}[0m rest`,
      [
        { text: "red", look: "ansi-red" },
        { text: " rest", look: "" },
      ],
    ],
    [
      `${esc}[1;32mok${esc}[22m fine`,
      [
        { text: "ok", look: "ansi-green font-semibold" },
        { text: " fine", look: "ansi-green" },
      ],
    ],
    [
      `${esc}[38;5;9mnine${esc}[38;2;1;2;3mtrue`,
      [
        { text: "nine", look: "ansi-red" },
        { text: "true", look: "ansi-red" },
      ],
    ],
    [`${esc}[2K${esc}[1Gline`, [{ text: "line", look: "" }]],
    ["10%\r50%\r100%", [{ text: "100%", look: "" }]],
    ["dos line\r", [{ text: "dos line", look: "" }]],
    [`${esc}]8;;https://example.com\x07link${esc}]8;;\x07`, [{ text: "link", look: "" }]],
    ["<b>not bold</b>", [{ text: "<b>not bold</b>", look: "" }]],
    [`${esc}[${"1;".repeat(2000)}mx`, [{ text: "x", look: "" }]],
  ])("%j", (line, want) => {
    expect(ansi(line)).toEqual(want);
  });
});
