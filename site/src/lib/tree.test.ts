import { expect, it } from "vitest";
import { itemError, read } from "./tree";

const file = (name: string) =>
  ({ name, isFile: true, isDirectory: false, file: (yes: (f: File) => void) => yes(new File([name], name)) }) as object;

// folder returns an entry whose reader returns two of its entries at a time, as browsers do with a hundred.
const folder = (name: string, entries: object[]) => ({
  name,
  isFile: false,
  isDirectory: true,
  createReader: () => {
    const rest = [...entries];
    return { readEntries: (yes: (some: object[]) => void) => yes(rest.splice(0, 2)) };
  },
});

const tree = folder("app", [
  file("a.txt"),
  file("b.txt"),
  file("c.txt"),
  folder("src", [file("main.go"), folder("empty", [])]),
]) as unknown as FileSystemEntry;

it("reads all of a folder, and its empty folders", async () => {
  const items = await read(tree);
  expect(items.map((i) => i.path)).toEqual(["app/a.txt", "app/b.txt", "app/c.txt", "app/src/main.go", "app/src/empty"]);
  expect(items.map((i) => i.file?.name)).toEqual(["a.txt", "b.txt", "c.txt", "main.go", undefined]);
  expect((await read(tree, { wanted: (p) => !p.includes("src") })).map((i) => i.path)).toEqual([
    "app/a.txt",
    "app/b.txt",
    "app/c.txt",
  ]);
});

it("refuses a folder that is too large", async () => {
  await expect(read(tree, { most: 3 })).rejects.toThrow("more than 3 files");
  await expect(read(tree, { most: 4 })).rejects.toThrow("more than 4 files");
  expect(await read(tree, { most: 5 })).toHaveLength(5);
});

it("refuses paths that lead elsewhere", () => {
  const wrong = ["", ".", "..", "../a", "a/../b", "/a", "a//b", "a/", "a\nb", "a\0", "a\u0085", "..\\a"];
  expect(wrong.filter((p) => itemError(p) === "")).toEqual([]);
  expect(itemError("d/".repeat(64) + "f")).toContain("63 folders");
  expect(["a", "app/src/main.go", "a b/ü.txt", "..a/.b"].map(itemError)).toEqual(["", "", "", ""]);
});
