// How much a browser loads, and how soon a thousand workspaces are on screen.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { expect, inject, it } from "vitest";
import { open, withBrowser } from "./browser";
import { run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");
const build = join(dirname(dirname(fileURLToPath(import.meta.url))), "build");

interface Chunk {
  file: string;
  isEntry?: boolean;
  imports?: string[];
}

it("loads at most 150 kB of JavaScript first, and no terminal", async () => {
  const manifest = JSON.parse(readFileSync(join(build, ".vite/manifest.json"), "utf8")) as Record<string, Chunk>;
  const loaded = new Set<string>();
  const add = (key: string, to = loaded) => {
    const chunk = manifest[key]!;
    if (to.has(chunk.file)) return;
    to.add(chunk.file);
    for (const other of chunk.imports ?? []) add(other, to);
  };
  for (const [key, chunk] of Object.entries(manifest)) if (chunk.isEntry) add(key);
  add("src/pages/workspaces.tsx");
  const size = [...loaded]
    .filter((f) => f.endsWith(".js"))
    .reduce((sum, f) => sum + gzipSync(readFileSync(join(build, f)), { level: 9 }).length, 0);
  console.log(`first load: ${(size / 1000).toFixed(1)} kB of JavaScript (gzip), ${loaded.size} files`);
  expect(size).toBeLessThanOrEqual(150_000);

  // The browser agrees about which files those are. The list of first steps is for users with fewer workspaces.
  const own = ["budget-1", "budget-2"];
  for (const name of own) await run(place, ["create", name, "-t", "process", "-y"]);
  const { page } = await open(place, token);
  const asked: string[] = [];
  page.on(
    "request",
    (r) => r.url().includes("/assets/") && r.url().endsWith(".js") && asked.push(new URL(r.url()).pathname.slice(1)),
  );
  await page.goto("/workspaces");
  await page.getByRole("heading", { name: "Workspaces" }).waitFor();
  // Some time after it has appeared, a page asks for what opens menus and the palette, and for the regions.
  const later = new Set<string>();
  for (const part of ["shell/palette", "shell/region-menu", "ui/menu-parts"]) add(`src/components/${part}.tsx`, later);
  expect(asked.filter((f) => !loaded.has(f) && !later.has(f))).toEqual([]);
  for (const name of own) await run(place, ["delete", name, "-y"]);
});
