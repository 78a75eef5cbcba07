import { describe, expect, it } from "vitest";
import { decoded, paths, safeReturn } from "./path";

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

describe("the address of a group", () => {
  it.each(["ops", "Ops / 50% & more", "%2F", "a?b#c", "Übersicht"])("names %s again", (name) => {
    const path = paths.group("research", name);
    expect(path.split("/").map(decoded)).toEqual(["", "organizations", "research", "groups", name]);
  });

  it("that is not encoded correctly is taken as it is", () => {
    expect(decoded("50%")).toBe("50%");
  });
});
