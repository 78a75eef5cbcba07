import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { checksIn, described, keysOf, kinds, permissionsOf, same, summary } from "./permissions";

// serverWords returns the words of the server for what custom roles can permit, and the powers that each means.
function serverWords(): Map<string, string> {
  const source = readFileSync(new URL("../../../coderd/organizations/words.go", import.meta.url), "utf8");
  const table = /var words = [^\n]*\n([\s\S]*?)\n}\n/.exec(source)![1]!;
  const words = new Map<string, string>();
  for (const [, type, actions] of table.matchAll(/^\t"(\w+)": \{\n([\s\S]*?)^\t\},/gm))
    for (const [, action, means] of actions!.matchAll(/^\t\t"(\w+)":\s*(.*),$/gm))
      words.set(`${type}.${action}`, means!);
  return words;
}

describe("permissions", () => {
  const words = serverWords();
  const refused = ["workspace.ssh", "workspace.application_connect", "workspace.share"]; // no role contains them
  const shown = kinds.flatMap((k) => k.actions.map(([action]) => `${k.type}.${action}`));

  it("are all that the server knows", () => {
    expect(words.size).toBeGreaterThan(30);
    expect([...shown, ...Object.keys(same), ...refused].sort()).toEqual([...words.keys()].sort());
  });

  it("omit only words that mean the same as one that is shown", () => {
    for (const [omitted, instead] of Object.entries(same)) {
      expect(shown).toContain(instead);
      expect(words.get(omitted)).toBe(words.get(instead));
    }
  });

  it("survive a change of the role", () => {
    const given = permissionsOf(["group.read", "group_member.read", "template.create"]);
    expect([...keysOf(given)]).toEqual(["group.read", "template.create"]);
    expect(keysOf(permissionsOf(keysOf(given)))).toEqual(keysOf(given));
  });

  it("are asked for one by one", () => {
    expect(Object.keys(checksIn("o"))).toEqual(shown);
    expect(checksIn("o")["template.create"]).toEqual({
      action: "create",
      object: { resource_type: "template", organization_id: "o" },
    });
  });

  it("read as words", () => {
    expect(described(new Set(["template.create", "template.read", "group.read", "unknown.action"]))).toEqual([
      ["Templates", "See all, create"],
      ["Groups", "See"],
    ]);
    expect(described(new Set())).toEqual([]);
    expect(summary(permissionsOf(["template.read", "audit_log.read"]))).toBe("Templates, audit log");
    expect(summary([])).toBe("No permissions");
  });
});
