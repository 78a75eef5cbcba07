import { expect, it } from "vitest";
import { shown } from "./audit-values";

const ann = "41de850f-0000-4000-8000-000000000001";
const bob = "41de850f-0000-4000-8000-000000000002";

it("shows values of a difference with names in place of ids", () => {
  const names = { [ann]: "ann" };
  expect(shown({ users: { [ann]: ["use"], [bob]: ["admin"] }, groups: {} }, names)).toBe(
    `users: ann: use, ${bob}: admin, groups: nothing`,
  );
  expect(shown(`${ann} ${bob}`, names)).toBe(`ann ${bob}`);
  expect(shown([ann, 5, true], names)).toBe("ann, 5, yes");
  expect([null, undefined, "", [], {}].map((v) => shown(v))).toEqual(Array(5).fill("nothing"));
  expect(shown(0)).toBe("0");
});
