import { expect, it } from "vitest";
import type { Workspace } from "~/api/types";
import { sorted } from "./sort";

const workspace = (name: string, owner_name: string, last_used_at: string) =>
  ({ name, owner_name, last_used_at }) as unknown as Workspace;
const list = [
  workspace("web-10", "bob", "2026-11-03T10:00:00.5Z"),
  workspace("web-9", "ada", "2026-11-03T10:00:00Z"),
  workspace("api", "bob", "2026-11-20T00:00:00Z"),
];
const names = (key: string) => sorted(list, key).map((w) => w.name);

it("orders by name with numbers as numbers", () => expect(names("name")).toEqual(["api", "web-9", "web-10"]));
it("shows what was used last first", () => expect(names("used")).toEqual(["api", "web-10", "web-9"]));
it("orders equal owners by name", () => expect(names("owner")).toEqual(["web-9", "api", "web-10"]));
it("keeps the server's order without a known key", () => expect(names("colour")).toEqual(list.map((w) => w.name)));
