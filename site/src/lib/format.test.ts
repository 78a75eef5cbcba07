import { describe, expect, it } from "vitest";
import { ago, bytes, duration, plural, sentence, until } from "./format";

describe("format", () => {
  it.each([
    [0, "0 ms"],
    [0.2, "<1 ms"],
    [999, "999 ms"],
    [1500, "1.5 s"],
    [42_000, "42 s"],
    [125_000, "2 min 5 s"],
    [7_200_000, "2 h"],
    [9 * 86_400_000, "9 days"],
    [-1, "–"],
    [NaN, "–"],
  ])("%d ms", (ms, want) => {
    expect(duration(ms)).toBe(want);
  });

  const now = Date.parse("2026-01-02T03:04:05Z");
  it.each([
    [null, "never"],
    ["0001-01-01T00:00:00Z", "never"],
    ["2026-01-02T03:04:00Z", "just now"],
    ["2026-01-02T03:04:08Z", "just now"], // by a server whose clock is a little ahead
    ["2026-01-02T03:05:04Z", "just now"], // as far ahead as clocks may differ
    ["2026-01-02T02:34:05Z", "30 min ago"],
    ["2026-01-01T03:04:05Z", "24 h ago"],
    ["2025-12-20T03:04:05Z", "13 d ago"],
    ["2025-01-02T03:04:05Z", "12 mo ago"],
    ["2026-01-02T05:04:05Z", "in 2 h"],
  ])("%s", (at, want) => {
    expect(ago(at, now)).toBe(want);
  });

  it.each([
    ["2026-01-02T03:04:35Z", "in a moment"],
    ["2026-01-02T03:05:04Z", "in 1 min"],
    ["2026-01-02T03:04:00Z", "just now"],
    ["2026-01-02T02:34:05Z", "30 min ago"],
    [null, "never"],
  ])("what may be yet to come: %s", (at, want) => {
    expect(until(at, now)).toBe(want);
  });

  it.each([
    ["must have at least 8 characters", "Must have at least 8 characters."],
    ["That username is taken.", "That username is taken."],
    ["élan", "Élan."],
    ["", ""],
  ])("a sentence of %j", (text, want) => {
    expect(sentence(text)).toBe(want);
  });

  it("sizes and numbers", () => {
    expect([bytes(0), bytes(1023), bytes(1536), bytes(150 << 20)]).toEqual(["0 B", "1023 B", "1.5 KiB", "150 MiB"]);
    expect([plural(1, "user"), plural(1200, "user"), plural(2, "person", "people")]).toEqual([
      "1 user",
      "1,200 users",
      "2 people",
    ]);
  });
});
