// @vitest-environment jsdom
import { afterEach, expect, it, vi } from "vitest";
import { keepSettings, readSettings } from "./terminal-settings";

afterEach(() => {
  vi.restoreAllMocks();
  localStorage.clear();
});

it("keeps the settings of terminals, within limits", () => {
  expect(readSettings()).toEqual({ size: 14, reader: false });
  expect(keepSettings({ size: 18, reader: true })).toEqual({ size: 18, reader: true });
  expect(readSettings()).toEqual({ size: 18, reader: true });
  expect(keepSettings({ size: 99, reader: false })).toEqual({ size: 32, reader: false });
  expect(keepSettings({ size: 1, reader: false }).size).toBe(8);
  keepSettings({ size: 14, reader: false });
  expect(localStorage.length).toBe(0);
});

it.each(["", "big", "NaN", "0", "-Infinity"])("takes %j in the storage for no larger or smaller font", (stored) => {
  localStorage.setItem("terminal-font-size", stored);
  const { size } = readSettings();
  expect(size).toBeGreaterThanOrEqual(8);
  expect(size).toBeLessThanOrEqual(32);
});

it("works in browsers that refuse to store", () => {
  const refuse = () => {
    throw new DOMException("no", "SecurityError");
  };
  vi.spyOn(Storage.prototype, "getItem").mockImplementation(refuse);
  vi.spyOn(Storage.prototype, "setItem").mockImplementation(refuse);
  expect(readSettings()).toEqual({ size: 14, reader: false });
  expect(keepSettings({ size: 20, reader: false })).toEqual({ size: 20, reader: false });
});
