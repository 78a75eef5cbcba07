// Writes the documentation into a folder, which exists: its pages beside the style and the search that Vite built
// there.
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { render } from "./pages";

const [, , from = "", to = ""] = process.argv;
cpSync(join(from, "screenshots"), join(to, "screenshots"), { recursive: true });
const files = render();
for (const [name, text] of files) {
  mkdirSync(dirname(join(to, name)), { recursive: true });
  writeFileSync(join(to, name), text);
}
console.log(`${files.size} pages are in ${to}: open index.html`);
