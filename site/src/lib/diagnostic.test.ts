import { expect, it } from "vitest";
import { positionOf } from "./diagnostic";

it.each([
  ["main.tf:12: Unsupported argument: An argument named x is not expected", { file: "main.tf", line: 12 }],
  ["terraform plan: modules/a-b/main.tf.json:3: bad", { file: "modules/a-b/main.tf.json", line: 3 }],
  ["Error: main.tf:4: Invalid expression", { file: "main.tf", line: 4 }],
  ["could not reach 10.0.0.1:80: refused", undefined],
])("%s", (text, want) => {
  if (want) expect(positionOf(text)).toMatchObject(want);
  else expect(positionOf(text)).toBeUndefined();
});
