import { expect, it } from "vitest";
import { commandOf, ctrlOf, sequenceOf } from "./terminal-keys";

const press = (code: string, ...held: ("ctrlKey" | "shiftKey" | "altKey" | "metaKey")[]) =>
  commandOf({
    code,
    ctrlKey: held.includes("ctrlKey"),
    shiftKey: held.includes("shiftKey"),
    altKey: held.includes("altKey"),
    metaKey: held.includes("metaKey"),
  });

it("takes two keys from the program in a terminal, and no other", () => {
  expect(press("Enter", "ctrlKey", "shiftKey")).toBe("leave");
  expect(press("KeyF", "ctrlKey", "shiftKey")).toBe("search");
  for (const code of ["Escape", "Tab", "Enter", "KeyF", "constructor"]) {
    expect(press(code)).toBeUndefined();
    expect(press(code, "ctrlKey")).toBeUndefined();
    expect(press(code, "shiftKey")).toBeUndefined();
    expect(press(code, "ctrlKey", "shiftKey", "altKey")).toBeUndefined();
    expect(press(code, "ctrlKey", "shiftKey", "metaKey")).toBeUndefined();
  }
  expect(press("Escape", "ctrlKey", "shiftKey")).toBeUndefined();
  expect(press("constructor", "ctrlKey", "shiftKey")).toBeUndefined();
});

it("sends what xterm sends for the keys that phones lack", () => {
  const plain = { application: false, ctrl: false };
  expect(sequenceOf("Escape", plain)).toBe("\x1b");
  expect(sequenceOf("Tab", plain)).toBe("\t");
  expect(sequenceOf("Up", plain)).toBe("\x1b[A");
  expect(sequenceOf("Left", { application: true, ctrl: false })).toBe("\x1bOD");
  expect(sequenceOf("Right", { application: true, ctrl: true })).toBe("\x1b[1;5C");
});

it("holds Ctrl for the next key only, and not for the terminal's own answers", () => {
  expect(ctrlOf("c")).toBe("\x03");
  expect(ctrlOf("C")).toBe("\x03");
  expect(ctrlOf("[")).toBe("\x1b");
  expect(ctrlOf("\\")).toBe("\x1c");
  expect(ctrlOf(" ")).toBe("\0");
  expect(ctrlOf("?")).toBe("\x7f");
  for (const same of ["1", "\r", "é", "日", "ls", "\x1b"]) expect(ctrlOf(same)).toBe(same);
  for (const answer of ["\x1b[?1;2c", "\x1b[A"]) expect(ctrlOf(answer)).toBeUndefined();
});
