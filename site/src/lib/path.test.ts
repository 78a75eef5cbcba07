import { describe, expect, it } from "vitest";
import { safeReturn } from "./path";

describe("safeReturn", () => {
  it.each([
    ["", "/"],
    ["?redirect=/workspaces%3Fq%3Da%23L3", "/workspaces?q=a#L3"],
    ["?redirect=https://evil.example/x", "/"],
    ["?redirect=//evil.example/x", "/"],
    ["?redirect=/%5Cevil.example", "/"],
    ["?redirect=javascript:alert(1)", "/"],
  ])("%s leads to %s", (search, want) => {
    expect(safeReturn(search)).toBe(want);
  });
});
