import { expect, it } from "vitest";
import { chipsOf, periodsOf, termsOf, valueOf, withTerm } from "./log-filters";

it("splits searches as the server does", () => {
  expect(termsOf('action:delete  email:"a b" dev')).toEqual(["action:delete", 'email:"a b"', "dev"]);
  expect(termsOf('name:"open')).toEqual(['name:"open']);
  expect(termsOf("")).toEqual([]);
});

it("reads and writes one term of a search", () => {
  expect(valueOf('Action:delete email:"a b"', "action")).toBe("delete");
  expect(valueOf('email:"a b"', "email")).toBe("a b");
  expect(valueOf("action", "action")).toBe("");
  expect(withTerm("dev action:delete", "action", "start")).toBe("dev action:start");
  expect(withTerm("dev action:delete", "action", "")).toBe("dev");
  expect(withTerm("", "resource_target", 'a "b')).toBe('resource_target:"a b"');
});

it("shows what no filter shows as a chip", () => {
  const shown = (key: string, value: string) => key === "action" && value === "delete";
  expect(chipsOf('action:delete username:ada "my dev"', shown)).toEqual([
    { key: "username", value: "ada", without: 'action:delete "my dev"' },
    { key: "name", value: "my dev", without: "action:delete username:ada" },
  ]);
  expect(chipsOf("action:unknown", shown)).toEqual([{ key: "action", value: "unknown", without: "" }]);
});

it("counts periods in days of UTC", () => {
  const at = Date.parse("2030-03-01T00:30:00Z");
  expect(periodsOf(at).map(([value]) => value)).toEqual(["", "2030-03-01", "2030-02-22", "2030-01-30", "2029-12-01"]);
});
