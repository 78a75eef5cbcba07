// The law of the dashboard's folders, as CONTRIBUTING.md says it.
import { expect, it } from "vitest";

const sources = import.meta.glob<string>(["./**/*.{ts,tsx}", "!./**/*.gen.ts", "!./**/*.test.{ts,tsx}"], {
  query: "?raw",
  import: "default",
  eager: true,
});

// What several features show.
const shared = ["ui", "code", "log"];

// folderOf returns "components/agent" for what is there, and the first folder of other files: "" of the program's.
function folderOf(path: string): string {
  const [first = "", second = ""] = path.split("/").slice(0, -1);
  return first === "components" ? `components/${second}` : first;
}

// imported returns the files, without their endings, that a file imports from src.
function imported(path: string, text: string): string[] {
  return [...text.matchAll(/\b(?:from|import) ?\(?"([^"]+)"/g)].flatMap(([, name = ""]) => {
    if (name.includes("?")) return []; // a text of the documentation
    if (name.startsWith("~/")) return name.slice(2);
    return name.startsWith(".") ? new URL(name, `file:///${path}`).pathname.slice(1) : [];
  });
}

// may reports whether files of a folder may import those of another.
function may(from: string, to: string): boolean {
  if (from === to || from === "" || to === "api" || to === "lib") return true;
  if (from === "api" || from === "lib") return false;
  const [, own] = from.split("/");
  const [, other] = to.split("/");
  if (own === undefined) return true; // pages put the features together
  if (other === undefined) return false;
  if (shared.includes(own)) return other === "ui";
  return shared.includes(other) || (own === "shell" && other === "workspace"); // the palette acts on workspaces
}

it("keeps features apart", () => {
  const wrong: string[] = [];
  let seen = 0;
  for (const [name, text] of Object.entries(sources)) {
    const path = name.slice(2);
    for (const other of imported(path, text)) {
      seen++;
      if (!may(folderOf(path), folderOf(other))) wrong.push(`${path} imports ${other}`);
    }
  }
  expect(seen).toBeGreaterThan(1000);
  expect(wrong).toEqual([]);
});

it("has no component outside a folder", () => {
  expect(Object.keys(sources).filter((name) => /^\.\/components\/[^/]+$/.test(name))).toEqual([]);
});

it("switches no rule of React off", () => {
  const off = Object.entries(sources).filter(([, text]) => /(?:eslint|oxlint)-disable.*react/.test(text));
  expect(off.map(([name]) => name)).toEqual([]);
});
