import { describe, expect, it } from "vitest";
import type { PreviewParameter } from "~/api/types";
import { isLocked, validate } from "./validate";

const rule = {
  validation_error: "",
  validation_regex: null,
  validation_min: null,
  validation_max: null,
  validation_monotonic: null,
};
const p = (more: Partial<PreviewParameter>, v?: Partial<typeof rule> | object) =>
  ({
    type: "string",
    form_type: "input",
    options: [],
    required: false,
    validations: v ? [{ ...rule, ...v }] : [],
    ...more,
  }) as unknown as PreviewParameter;
const option = (value: string) => ({ name: value, description: "", icon: "", value: { value, valid: true } });

describe("validate", () => {
  it.each([
    ["empty", p({}), "", undefined, ""],
    ["needed", p({ required: true }), "", undefined, "Enter a value."],
    ["number", p({ type: "number" }), "1e", undefined, "Enter a number."],
    ["least", p({ type: "number" }, { validation_min: 2 }), "1", undefined, "Enter at least 2."],
    [
      "most, in the template's words",
      p({ type: "number" }, { validation_max: 4, validation_error: "{value} is above {max}" }),
      "5",
      undefined,
      "5 is above 4",
    ],
    [
      "words about a bound that there is not",
      p({ type: "number" }, { validation_max: 4, validation_error: "{value} is not in {min}..{max}" }),
      "5",
      undefined,
      "Enter at most 4.",
    ],
    [
      "grows",
      p({ type: "number" }, { validation_monotonic: "increasing" }),
      "3",
      "4",
      "Enter at least 4: the value can only increase.",
    ],
    [
      "shrinks",
      p({ type: "number" }, { validation_monotonic: "decreasing" }),
      "5",
      "4",
      "Enter at most 4: the value can only decrease.",
    ],
    ["shape", p({}, { validation_regex: "^[a-z]+$" }), "A1", undefined, "This must match ^[a-z]+$."],
    ["shape without case", p({}, { validation_regex: "(?i)^[a-z]+$" }), "A", undefined, ""],
    ["a shape that only the server knows", p({}, { validation_regex: "\\pZZ[" }), "A", undefined, ""],
    ["options", p({ options: [option("a")] }), "b", undefined, "Choose from the options: b is not one of them."],
    ["list", p({ type: "list(string)" }), '["a"]', undefined, ""],
    ["no list", p({ type: "list(string)" }), "a", undefined, "Enter a list of values."],
    [
      "list of options",
      p({ type: "list(string)", options: [option("a")] }),
      '["a","c"]',
      undefined,
      "Choose from the options: c is not one of them.",
    ],
    ["bool", p({ type: "bool" }), "yes", undefined, "Enter true or false."],
  ])("%s", (_, parameter, value, before, want) => {
    expect(validate(parameter, value, before)).toBe(want);
  });
});

describe("isLocked", () => {
  const region = { options: [option("eu"), option("us")] };
  it.each([
    ["a new workspace", p({ ...region, mutable: false }), undefined, false],
    ["set once", p({ ...region, mutable: false }), "eu", true],
    ["set to nothing", p({ mutable: false, required: true }), "", true],
    ["mutable", p({ ...region, mutable: true }), "eu", false],
    ["no longer allowed", p({ ...region, mutable: false }), "mars", false],
  ])("%s", (_, parameter, before, want) => expect(isLocked(parameter, before)).toBe(want));
});
