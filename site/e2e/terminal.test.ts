import { expect, inject, it, beforeAll } from "vitest";
import type { Page } from "playwright-core";
import { axe, fits, open, picture, withBrowser } from "./browser";
import { run } from "./server";
import { password } from "./setup";

withBrowser();
const place = inject("place");
const token = inject("token");

beforeAll(() => run(place, ["create", "term", "-t", "process", "-y"]));

// screen is what the terminal shows, line by line.
const screen = (page: Page) =>
  page
    .locator(".xterm-rows > div")
    .allInnerTexts()
    .then((rows) => rows.map((r) => r.replaceAll(" ", " ").trimEnd()));
const shows = (page: Page, text: string) =>
  page.waitForFunction(
    (t) =>
      [...document.querySelectorAll(".xterm-rows > div")].some((r) =>
        (r as HTMLElement).innerText.replaceAll(" ", " ").includes(t),
      ),
    text,
  );

async function start(page: Page) {
  await page.goto("/@ada/term.main/terminal");
  await page.locator('[data-terminal="open"]').waitFor();
  await page.locator(".xterm-helper-textarea").focus();
}

it("runs programs, full-screen ones too, in every language", async () => {
  const { page } = await open(place, token);
  await start(page);
  await page.keyboard.type("echo $((6*7)) héllo 日本 🚀\n");
  await shows(page, "42 héllo 日本 🚀");
  await page.keyboard.type("clear; printf '\\033[38;2;10;200;30mtrue colour\\033[0m\\n'\n");
  const coloured = page.locator(".xterm-rows span", { hasText: /^true colour/ }).first();
  await coloured.waitFor();
  expect(await coloured.evaluate((e) => getComputedStyle(e).color)).toBe("rgb(10, 200, 30)");
  // The program sees the window's size, and its changes.
  await page.keyboard.type("clear; was=$(stty size); echo known-$((6*7))\n");
  await shows(page, "known-42");
  await page.setViewportSize({ width: 700, height: 500 });
  await page.keyboard.type('clear; until [ "$(stty size)" != "$was" ]; do sleep 0.1; done; echo smaller-$((6*7))\n');
  await shows(page, "smaller-42");
  // A full-screen program: it takes the whole screen and gives it back.
  await page.keyboard.type("clear; seq 1 500 | less\n");
  await shows(page, ":");
  await page.keyboard.press("G");
  await shows(page, "500");
  await page.keyboard.press("q");
  await page.keyboard.type("echo back\n");
  await shows(page, "back");
  await axe(page, "terminal");
});

it("copies, pastes and links addresses", async () => {
  const { page, context } = await open(place, token);
  await start(page);
  await page.evaluate(() => navigator.clipboard.writeText("echo pasted-$((1+1))\n"));
  await page.keyboard.press("Control+Shift+V");
  if (!(await screen(page)).join("\n").includes("pasted"))
    await page.locator(".xterm-helper-textarea").evaluate((e) => {
      const data = new DataTransfer();
      data.setData("text/plain", "echo pasted-$((1+1))\n");
      e.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
    });
  await page.keyboard.press("Enter");
  await shows(page, "pasted-2");
  await page.keyboard.type(`clear; echo ${place.url}/healthz\n`);
  await shows(page, `${place.url}/healthz`);
  const row = page.locator(".xterm-rows > div", { hasText: /^http/ }).first();
  const box = (await row.boundingBox())!;
  const opened = context.waitForEvent("page");
  await page.mouse.move(box.x + 60, box.y + box.height / 2);
  await page.mouse.move(box.x + 64, box.y + box.height / 2);
  await page.mouse.click(box.x + 64, box.y + box.height / 2);
  expect((await opened).url()).toMatch(/healthz|about:blank/);
  // A double click selects a word, which can be copied.
  await page.keyboard.type("clear; echo selectable\n");
  await shows(page, "selectable");
  const word = (await page
    .locator(".xterm-rows > div", { hasText: /^selectable/ })
    .first()
    .boundingBox())!;
  await page.mouse.dblclick(word.x + 20, word.y + word.height / 2);
  await page.keyboard.press("Control+Shift+C");
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe("selectable");
});

it("survives a reload with its screen, and keeps its shell", async () => {
  const { page } = await open(place, token);
  await start(page);
  await page.keyboard.type("KEPT=yes; echo before-the-reload\n");
  await shows(page, "before-the-reload");
  await page.reload();
  await page.locator('[data-terminal="open"]').waitFor();
  await shows(page, "before-the-reload");
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.type("echo still-$KEPT\n");
  await shows(page, "still-yes");
  await picture(page, "terminal");
  await page.keyboard.type("exit\n");
  await page.getByText("The session has ended.").waitFor();
});

it("allows inline styles in the terminal, and on no page after it", async () => {
  const { page } = await open(place, undefined, { expect: /Content Security Policy/ });
  const styled = () =>
    page.evaluate(() => {
      const probe = document.createElement("i");
      probe.setAttribute("style", "color: red");
      return probe.style.color;
    });
  await page.goto("/@ada/term.main/terminal");
  await page.getByLabel("Email").fill("ada@example.com");
  expect(await styled()).toBe(""); // the form to sign in, where the terminal's address leads without a session
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator('[data-terminal="open"]').waitFor();
  expect(await styled()).toBe("red");
  await page.goto("/@ada/term.none/terminal");
  await page.getByRole("link", { name: "Go to the workspace" }).click();
  await page.getByRole("heading", { name: "term" }).waitFor();
  expect(await styled()).toBe("");
  await page.goBack();
  await page.getByText("Agent none not found").waitFor();
  expect(await styled()).toBe("red");
});

it("has a bar with its name and state, a search, settings, its link, and a way out", async () => {
  const { page, context } = await open(place, token, { width: 1440 });
  await start(page);
  const bar = page.getByRole("banner");
  await bar.getByRole("link", { name: "term.main" }).waitFor();
  await bar.getByText("Connected").waitFor();
  const input = page.getByRole("textbox", { name: "Terminal input" });
  const size = () => page.locator(".xterm-rows").evaluate((e) => getComputedStyle(e).fontSize);

  // Escape and Tab are the shell's; another key leaves for the bar, and Shift+Tab leads on from there.
  await page.keyboard.type("clear; read -rsn1 got; printf 'got %q\\n' \"$got\"\n");
  await page.keyboard.press("Escape");
  await shows(page, "got $'\\E'");
  await page.keyboard.type("clear; say_twice() { echo $1 $1; }\n");
  await page.keyboard.type("say_tw");
  await page.keyboard.press("Tab");
  await page.keyboard.type(" pear\n");
  await shows(page, "pear pear");
  await page.keyboard.press("Control+Shift+Enter");
  await expect.poll(() => bar.locator(":focus").count()).toBe(1);
  await page.keyboard.press("?");
  const help = page.getByRole("dialog", { name: "Keyboard shortcuts" });
  await help.getByText("Leave a terminal").waitFor();
  await page.keyboard.press("Escape");
  await help.waitFor({ state: "detached" });
  await expect.poll(() => bar.locator(":focus").count()).toBe(1);

  await input.focus();
  await page.keyboard.press("Control+Shift+F");
  const field = page.getByRole("searchbox", { name: "Search in the terminal" });
  await field.fill("pear pear");
  await page.getByText("1 of 1").waitFor();
  await field.fill("absent here");
  await page.getByText("No matches").waitFor();
  await field.press("Escape");
  await field.waitFor({ state: "detached" });
  expect(await input.evaluate((e) => e === document.activeElement)).toBe(true);

  await bar.getByRole("button", { name: "Larger text" }).click();
  await expect.poll(size).toBe("15px");
  const reads = bar.getByRole("button", { name: "Screen-reader mode" });
  await reads.click();
  await page.locator(".xterm-accessibility-tree", { hasText: "pear pear" }).waitFor();
  await axe(page, "terminal with screen-reader mode");

  // Another page of this browser has the settings, and the copied link leads it to the same shell.
  await bar.getByRole("button", { name: "Copy the link to this terminal" }).click();
  await bar.getByText("Copied").waitFor({ state: "attached" });
  const link = await page.evaluate(() => navigator.clipboard.readText());
  expect(link).toBe(page.url());
  const other = await context.newPage();
  await other.setViewportSize({ width: 390, height: 800 });
  await other.emulateMedia({ colorScheme: "dark" });
  await other.goto(link);
  await shows(other, "pear pear");
  await expect.poll(() => other.locator(".xterm-rows").evaluate((e) => getComputedStyle(e).fontSize)).toBe("15px");
  expect(await other.getByRole("button", { name: "Screen-reader mode" }).getAttribute("aria-pressed")).toBe("true");
  await axe(other, "narrow, dark terminal");
  await fits(other, "narrow terminal");
}, 240_000); // a hang ends it: these steps take minutes on a very busy machine

it("has tabs and terminals side by side, which a reload and a copied link find again", async () => {
  const { page, context } = await open(place, token);
  await start(page);
  const bar = page.getByRole("banner");
  const pane = (n: number) => page.getByRole("region", { name: `Terminal ${n}` });
  const says = (n: number, text: string) => pane(n).locator(".xterm-rows > div", { hasText: text }).first().waitFor();
  await page.keyboard.type("WHICH=first; echo in-$WHICH\n");
  await shows(page, "in-first");
  await bar.getByRole("button", { name: "New tab" }).click();
  await page.locator('[data-terminal="open"]').waitFor();
  await page.keyboard.type("WHICH=second; echo in-$WHICH\n"); // the new one has the focus
  await says(2, "in-second");
  expect(await pane(1).isVisible()).toBe(false);
  await bar.getByRole("button", { name: "Split" }).click();
  await page.locator('[data-terminal="open"]').waitFor();
  await page.keyboard.type("WHICH=third; echo in-$WHICH\n");
  await says(3, "in-third");
  expect(await pane(2).isVisible()).toBe(true);
  await axe(page, "terminals side by side");

  // With the keyboard alone: out of a terminal, and into another.
  await page.keyboard.press("Control+Shift+Enter");
  await expect.poll(() => bar.locator("[aria-current=true]:focus").count()).toBe(1);
  await bar.getByRole("button", { name: /^Terminal 2/ }).press("Enter");
  await page.keyboard.type("clear; echo again-$WHICH\n");
  await says(2, "again-second");

  // The address holds them all; the copied one is that of the terminal with the focus.
  await page.reload();
  await page.locator('[data-terminal="open"]').waitFor();
  await says(2, "again-second");
  await says(3, "in-third");
  await bar.getByRole("button", { name: "Copy the link to this terminal" }).click();
  await bar.getByText("Copied").waitFor({ state: "attached" });
  const other = await context.newPage();
  await other.goto(await page.evaluate(() => navigator.clipboard.readText()));
  await shows(other, "again-second");
  expect(await other.getByRole("list", { name: "Terminals" }).count()).toBe(0);
  await other.close();

  // A shell that ends closes its terminal, and a closed terminal leaves its shell.
  await pane(3).getByRole("textbox").focus();
  await page.keyboard.type("exit\n");
  await bar.getByRole("button", { name: "Close terminal 3" }).waitFor({ state: "detached" });
  await bar.getByRole("button", { name: "Close terminal 2" }).click();
  await page.getByRole("region", { name: "Terminal", exact: true }).waitFor();
  await shows(page, "in-first");
  expect(new URL(page.url()).searchParams.has("tabs")).toBe(false);
}, 240_000);

it("has the keys that a phone lacks", async () => {
  const { page } = await open(place, token, { width: 390 });
  await start(page);
  const keys = page.getByRole("group", { name: "Keys" });
  const tap = (name: string) => keys.getByRole("button", { name, exact: true }).click();
  await page.keyboard.type("clear; say_twice() { echo $1 $1; }; echo ready-$((1+1)); cat\n");
  await shows(page, "ready-2");
  await tap("Ctrl");
  expect(await keys.getByRole("button", { name: "Ctrl" }).getAttribute("aria-pressed")).toBe("true");
  await page.keyboard.type("c"); // the focus has stayed in the terminal
  await shows(page, "^C");
  expect(await keys.getByRole("button", { name: "Ctrl" }).getAttribute("aria-pressed")).toBe("false");
  await page.keyboard.type("say_tw");
  await tap("Tab");
  await page.keyboard.type(" plm");
  await tap("Left arrow");
  await page.keyboard.type("u\n");
  await shows(page, "plum plum");
  await page.keyboard.type("clear; read -rsn1 got; printf 'got %q\\n' \"$got\"\n");
  await tap("Esc");
  await shows(page, "got $'\\E'");
  await page.keyboard.type("clear\n");
  await tap("Up arrow");
  await tap("Up arrow");
  await shows(page, "read -rsn1");
  await axe(page, "terminal on a phone");
  await fits(page, "terminal on a phone");
});

it("speaks of a session that runs only if there has been one", async () => {
  const { page } = await open(place, token);
  let way: "closed" | "open" = "closed";
  let cut = () => {};
  await page.routeWebSocket(/\/pty\?/, (ws) => {
    if (way === "closed") return void ws.close({ code: 1011 });
    const server = ws.connectToServer();
    cut = () => {
      void server.close();
      void ws.close({ code: 1011 });
    };
  });
  await page.goto("/@ada/term.main/terminal");
  const notice = page.getByRole("status").filter({ hasText: "Reconnecting…" });
  await notice.getByText("Cannot connect. Reconnecting…").waitFor();
  expect(await page.getByText("still running in the workspace").count()).toBe(0);
  way = "open";
  await page.getByRole("button", { name: "Reconnect now" }).click();
  await page.locator('[data-terminal="open"]').waitFor();
  way = "closed";
  cut();
  await notice.getByText("Your session is still running in the workspace.").waitFor();
});
