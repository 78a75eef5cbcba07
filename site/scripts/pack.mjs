// Compresses what Vite has built into dist, which the server embeds: every file as brotli and gzip, so that serving one
// is a copy. Pictures are compressed already, and stored as they are.
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const site = dirname(dirname(fileURLToPath(import.meta.url)));
const from = join(site, "build");
const to = join(site, "dist");

for (const name of readdirSync(to)) {
  if (name !== ".gitkeep") rmSync(join(to, name), { recursive: true });
}
for (const entry of readdirSync(from, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile()) continue;
  const path = join(entry.parentPath, entry.name);
  const name = relative(from, path);
  if (name.startsWith(".vite")) continue;
  const content = readFileSync(path);
  const target = join(to, name);
  mkdirSync(dirname(target), { recursive: true });
  if (name.endsWith(".webp")) {
    writeFileSync(target, content);
    continue;
  }
  const quality = {
    params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: content.length },
  };
  writeFileSync(`${target}.br`, brotliCompressSync(content, quality));
  writeFileSync(`${target}.gz`, gzipSync(content, { level: 9 }));
}
