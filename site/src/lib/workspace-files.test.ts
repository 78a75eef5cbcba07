import { expect, it } from "vitest";
import type { AgentFile } from "~/api/types";
import { below, crumbsOf, isPicture, nameError, sorted } from "./workspace-files";

it("names the folders on the way", () => {
  expect(crumbsOf("/home/ada")).toEqual([
    { name: "/", path: "/" },
    { name: "home", path: "/home" },
    { name: "ada", path: "/home/ada" },
  ]);
  expect(crumbsOf("/")).toEqual([{ name: "/", path: "/" }]);
  expect(crumbsOf("")).toEqual([]);
  expect(crumbsOf("/C:/Users").map((c) => c.path)).toEqual(["/", "/C:", "/C:/Users"]);
  expect([below("/", "a"), below("/home", "a")]).toEqual(["/a", "/home/a"]);
});

it("sorts folders first", () => {
  const file = (name: string, more: Partial<AgentFile> = {}): AgentFile => ({
    name,
    kind: "file",
    size: 1,
    mode: "-rw-r--r--",
    modified_at: "2030-01-01T00:00:00Z",
    ...more,
  });
  const files = [
    file("b10", { size: 5 }),
    file("b9", { modified_at: "2031-01-01T00:00:00Z" }),
    file("to-folder", { kind: "link", link_kind: "folder" }),
    file("a"),
    file("src", { kind: "folder" }),
  ];
  const names = (by: "name" | "size" | "modified") => sorted(files, by).map((f) => f.name);
  expect(names("name")).toEqual(["src", "to-folder", "a", "b9", "b10"]);
  expect(names("size")).toEqual(["src", "to-folder", "b10", "a", "b9"]);
  expect(names("modified")).toEqual(["src", "to-folder", "b9", "a", "b10"]);
});

it("knows pictures and names", () => {
  expect(["a.PNG", "b.jpeg"].every(isPicture)).toBe(true);
  expect(["a.svg", "png", "a.png.html"].some(isPicture)).toBe(false);
  expect(["", "a", ".a", "a b"].map(nameError)).toEqual(["", "", "", ""]);
  expect(["a/b", ".", ".."].every((n) => nameError(n) !== "")).toBe(true);
});
