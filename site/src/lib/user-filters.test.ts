import { expect, it } from "vitest";
import { filtersOf, searchOf } from "./user-filters";

const all = { role: "", status: "", login: "", organization: "", seen: "" };
const now = Date.parse("2030-05-31T12:34:56Z");

it("reads filters from an address, and nothing that no filter can be", () => {
  expect(filtersOf(new URLSearchParams("role=owner&status=dormant&login=oidc&organization=east&seen=week"))).toEqual({
    role: "owner",
    status: "dormant",
    login: "oidc",
    organization: "east",
    seen: "week",
  });
  const hostile = 'role=constructor&status=x status:active&login=__proto__&organization=a" role:owner&seen=toString';
  expect(filtersOf(new URLSearchParams(hostile))).toEqual(all);
});

it("searches for text and filters", () => {
  expect(searchOf("", all, now)).toBe("");
  expect(searchOf(' a"b role:owner ', all, now)).toBe('search:"ab role:owner"');
  expect(searchOf("ada", { ...all, role: "member", login: "none", organization: "east" }, now)).toBe(
    'search:"ada" role:member login_type:none organization:east',
  );
  expect(searchOf("", { ...all, seen: "hour" }, now)).toBe("last_seen_after:2030-05-31T11:34:00.000Z");
  expect(searchOf("", { ...all, seen: "not-month" }, now)).toBe("last_seen_before:2030-05-01T12:34:00.000Z");
});
