import { expect, it } from "vitest";
import { nextName } from "./version-name";

it.each([
  ["", ""],
  ["v1", "v1-2"],
  ["v1-2", "v1-3"],
  ["a-b-9", "a-b-10"],
  ["-3", ""],
])("after %j comes %j", (name, want) => expect(nextName(name)).toBe(want));
