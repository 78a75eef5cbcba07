// Films a recording of docs/recordings as docs/screenshots/NAME.webp, for pages that do not play asciicasts. It plays
// the recording in xterm.js in Chromium, and img2webp (Debian's package webp) joins the pictures.
//
//	node scripts/film.mjs NAME

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const lastShown = 3; // seconds that the last picture stays before the film begins again
const together = 0.05; // seconds between two pictures at least

const programs = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/chromium-browser"];

const name = process.argv[2];
const root = join(import.meta.dirname, "../..");
const [header, ...events] = readFileSync(join(root, "docs/recordings", `${name}.cast`), "utf8")
  .trim()
  .split("\n")
  .map((line) => JSON.parse(line));
const module = (path) => join(root, "site/node_modules", path);

const frames = mkdtempSync(join(tmpdir(), "film-"));
const browser = await chromium.launch({ executablePath: programs.find(existsSync), args: ["--no-sandbox"] });
try {
  const page = await browser.newPage({ deviceScaleFactor: 1 });
  await page.setContent(`<body style="margin: 0; background: #16181d"><div id="terminal" style="padding: 16px"></div>`);
  await page.addStyleTag({ path: module("@xterm/xterm/css/xterm.css") });
  await page.addScriptTag({ path: module("@xterm/xterm/lib/xterm.js") });
  await page.evaluate(({ width, height }) => {
    const theme = { background: "#16181d", foreground: "#d7dae0" };
    const options = { cols: width, rows: height, theme, fontSize: 15, fontFamily: "DejaVu Sans Mono, monospace" };
    window.terminal = new window.Terminal({ ...options, scrollback: 0 });
    window.terminal.open(document.getElementById("terminal"));
  }, header);
  const box = await page.locator("#terminal .xterm-screen").boundingBox();
  await page.setViewportSize({ width: Math.ceil(box.width) + 32, height: Math.ceil(box.height) + 32 });

  const args = ["-loop", "0", "-lossless", "-min_size"];
  let shown = 0;
  let text = "";
  for (const [i, [at, , output]] of events.entries()) {
    text += output;
    const next = events[i + 1]?.[0] ?? at + lastShown;
    if (next - shown < together) continue; // it is in the next picture
    await page.evaluate((output) => new Promise((done) => window.terminal.write(output, done)), text);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    text = "";
    const file = join(frames, `${i}.png`);
    writeFileSync(file, await page.screenshot());
    args.push("-d", String(Math.round((next - shown) * 1000)), file);
    shown = next;
  }
  execFileSync("img2webp", [...args, "-o", join(root, "docs/screenshots", `${name}.webp`)], { stdio: "inherit" });
} finally {
  await browser.close();
  rmSync(frames, { recursive: true });
}
