// The browser of the suite, and what must hold on every page that a test opens: no script fails, no policy is broken,
// nothing is asked of another host.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { AxeResults } from "axe-core";
import { type Browser, type BrowserContext, chromium, type Locator, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import type { Place } from "./server";

const executablePath = [
  process.env["CHROMIUM"],
  "/usr/bin/chromium-headless-shell",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((p) => p && existsSync(p));

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

let browser: Browser;
let contexts: BrowserContext[] = [];
let complaints: string[] = [];

// withBrowser opens one for the tests of a file.
export function withBrowser() {
  beforeAll(async () => {
    if (!executablePath)
      throw new Error("there is no Chromium: run scripts/test-prerequisites, or set CHROMIUM to one");
    // Chromium's own sandbox does not run as root.
    browser = await chromium.launch({
      executablePath,
      args: ["--disable-dev-shm-usage", ...(process.getuid?.() === 0 ? ["--no-sandbox"] : [])],
    });
  });
  afterEach(async ({ task }) => {
    if (task.result?.state === "fail") {
      const seen = await keepEvidence(task.name);
      for (const error of task.result.errors ?? []) error.message += `\n${seen}`;
    }
    await Promise.all(contexts.map((c) => c.close()));
    contexts = [];
    const found = complaints;
    complaints = [];
    expect(found).toEqual([]);
  });
  afterAll(() => browser.close());
}

// keepEvidence returns what a failed test saw, and leaves pictures of it in build/e2e.
async function keepEvidence(test: string) {
  const dir = join(root, "build", "e2e");
  mkdirSync(dir, { recursive: true });
  const name = test.replaceAll(/\W+/g, "-").slice(0, 60);
  const seen = complaints.map((c) => `complaint: ${c}`);
  for (const [i, page] of contexts.flatMap((c) => c.pages()).entries()) {
    await page.screenshot({ path: join(dir, `${name}-${i}.png`), timeout: 5000 }).catch(() => undefined);
    const text = await page.locator("body").innerText({ timeout: 5000 }).catch(String);
    seen.push(`page ${i}, ${page.url()}:\n${text.slice(0, 2000)}`);
  }
  return seen.join("\n");
}

export interface Opened {
  page: Page;
  context: BrowserContext;
}

interface Look {
  width?: number;
  dark?: boolean;
  expect?: RegExp; // complaints that belong to the test
}

// open gives a page of a fresh browser profile. token: signed in as its owner.
export async function open(place: Place, token?: string, look: Look = {}): Promise<Opened> {
  const context = await browser.newContext({
    baseURL: place.url,
    viewport: { width: look.width ?? 1280, height: 900 },
    colorScheme: look.dark ? "dark" : "light",
    permissions: ["clipboard-read", "clipboard-write"],
  });
  contexts.push(context);
  if (token)
    await context.addCookies([
      { name: "coder_session_token", value: token, url: place.url, httpOnly: true, sameSite: "Lax" },
    ]);
  const complain = (text: string) => {
    if (!look.expect?.test(text)) complaints.push(text);
  };
  context.on("request", (request) => {
    const url = new URL(request.url());
    const ours = url.host === new URL(place.url).host || url.hostname.endsWith(".apps.localhost");
    if (/^(https?|wss?):$/.test(url.protocol) && !ours) complain(`a request to another host: ${request.url()}`);
  });
  context.on("weberror", (error) => complain(`a script failed: ${error.error().message}`));
  context.on("console", (message) => {
    // The browser reports every error status and every connection that a restart closed.
    if (
      message.type() === "error" &&
      !/Failed to load resource|ERR_|WebSocket connection to|EventSource/.test(message.text())
    )
      complain(`console: ${message.text()}`);
  });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  return { page, context };
}

const axeSource = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

// axe fails on every finding that is serious or worse, of the whole page or of the parts that selectors name: it takes
// minutes for a long page on a busy machine.
export async function axe(page: Page, what: string, parts: string[] = ["html"]) {
  // The source is evaluated by the test's own channel: the page's policy would refuse a script element.
  await page.evaluate(readFileSync(axeSource, "utf8"));
  const result = await page.evaluate(
    (include) =>
      (window as unknown as { axe: { run: (c: object, o: object) => Promise<AxeResults> } }).axe.run(
        { include },
        {
          resultTypes: ["violations"],
          // Not style sheets, which only experimental rules read: axe copies those of shadow roots into style elements,
          // and the page's policy refuses that.
          preload: { assets: ["media"] },
        },
      ),
    parts,
  );
  const serious = result.violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  expect(
    serious.map(
      (v) =>
        `${what}: ${v.id}: ${v.help}: ${v.nodes
          .slice(0, 3)
          .map((n) => `${n.target.join(" ")} (${n.failureSummary?.split("\n")[1]?.trim()})`)
          .join("; ")}`,
    ),
  ).toEqual([]);
}

// admin opens the Admin menu and returns it.
export async function admin(page: Page): Promise<Locator> {
  await page.getByRole("navigation", { name: "Main" }).getByRole("button", { name: "Admin" }).click();
  const menu = page.getByRole("menu");
  await menu.waitFor();
  return menu;
}

// contentOf is the text in the editor of files, without the messages between its lines.
export async function contentOf(editor: Locator): Promise<string> {
  await editor.waitFor();
  const lines = await editor.locator(".cm-line").allInnerTexts();
  return lines.map((line) => line.replace(/\n$/, "")).join("\n");
}

// rewrite pastes a text in place of what is in the editor of files.
export async function rewrite(editor: Locator, text: string) {
  await editor.focus();
  await editor.press("Control+a");
  await editor.page().evaluate((t) => navigator.clipboard.writeText(t), text);
  await editor.press("Control+v");
}

// shows waits for a text in a terminal.
export const shows = (page: Page, text: string) =>
  page.waitForFunction(
    (t) =>
      [...document.querySelectorAll(".xterm-rows > div")].some((r) =>
        (r as HTMLElement).innerText.replaceAll("\u00a0", " ").includes(t),
      ),
    text,
  );

// types enters a text in a terminal once it is open.
export const types = async (page: Page, text: string) => {
  await page.locator('[data-terminal="open"]').waitFor({ timeout: 60_000 });
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.type(text);
};

// fits fails when a page is wider than its window.
export async function fits(page: Page, what: string) {
  const over = await page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return "";
    const widest = [...document.querySelectorAll("body *")]
      .filter((e) => e.getBoundingClientRect().right > width + 1)
      .at(-1);
    return `${document.documentElement.scrollWidth} of ${width} px: ${widest?.outerHTML.slice(0, 200)}`;
  });
  expect(over, `${what} is wider than the window`).toBe("");
}

const pictures = join(root, "docs", "screenshots");

// picture renews a screenshot that the documentation shows, when SCREENSHOTS is set: to 1, or to a folder that gets all
// pictures of the suite, to look at. It ends where the page does.
export async function picture(page: Page, name: string) {
  const to = process.env["SCREENSHOTS"];
  if (!to) return;
  const file = to === "1" ? join(pictures, `${name}.webp`) : join(root, to, `${name}.webp`);
  if (to === "1" && !existsSync(file)) return;
  mkdirSync(dirname(file), { recursive: true });
  const clip = await page.evaluate(() => {
    const shown = [...document.querySelectorAll("main *, [role=dialog], [role=menu]")];
    const bottom = Math.max(200, ...shown.map((e) => e.getBoundingClientRect().bottom));
    return { x: scrollX, y: scrollY, width: innerWidth, height: Math.min(innerHeight, bottom + 24), scale: 1 };
  });
  const session = await page.context().newCDPSession(page);
  const { data } = await session.send("Page.captureScreenshot", { format: "webp", quality: 82, clip });
  writeFileSync(file, Buffer.from(data, "base64"));
}
