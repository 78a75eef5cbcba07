import { expect, it } from "vitest";
import { commandOf } from "./terminal-keys";

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
