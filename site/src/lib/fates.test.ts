import { expect, it } from "vitest";
import { fates } from "./fates";

const resource = (name: string, hide = false) => ({ type: "docker_volume", name, icon: "", hide });
const [home, cache, shell, hidden] = [resource("home"), resource("cache"), resource("shell"), resource("x", true)];

const told = (...of: Parameters<typeof fates>) => fates(...of).map((r) => `${r.fate} ${r.count} ${r.name}`);

it("tells what an update of a running workspace makes again", () => {
  expect(told([home, shell, hidden], [home, shell, cache], [home])).toEqual([
    "kept 1 home",
    "replaced 1 shell",
    "created 1 cache",
  ]);
});

it("keeps all that a stopped workspace has and the version makes", () => {
  expect(told([home, cache], [home, shell], undefined)).toEqual(["kept 1 home", "created 1 shell", "deleted 1 cache"]);
});

it("counts the instances of one name", () => {
  expect(told([cache, cache, cache, home], [cache, home, home], [home])).toEqual([
    "replaced 1 cache",
    "deleted 2 cache",
    "created 1 home",
    "kept 1 home",
  ]);
});
