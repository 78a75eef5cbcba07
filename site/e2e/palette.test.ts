import { expect, inject, it } from "vitest";
import { axe, fits, open, withBrowser } from "./browser";
import { run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

it("finds workspaces, templates, pages and actions with the keyboard only", async () => {
  await run(place, ["create", "quick", "-t", "process", "-y"]);
  const { page } = await open(place, token, { width: 390 });
  await page.goto("/templates");
  await page.getByRole("heading", { name: "Templates" }).waitFor();
  const palette = page.getByRole("dialog", { name: "Command palette" });
  const input = palette.getByRole("combobox");
  const active = palette.getByRole("option", { selected: true });
  await page.keyboard.press("Control+k");
  await palette.getByRole("option", { name: "Mesh page" }).waitFor();
  await axe(page, "the command palette");
  await fits(page, "the command palette");
  // A page: the arrows move, Enter opens.
  await page.keyboard.type("mesh");
  await active.getByText("Mesh", { exact: true }).waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL("**/mesh");
  await palette.waitFor({ state: "detached" });
  // Escape closes it.
  await page.keyboard.press("Control+k");
  await input.waitFor();
  await page.keyboard.press("Escape");
  await palette.waitFor({ state: "detached" });
  // An action that asks first.
  await page.keyboard.press("Control+k");
  await input.waitFor();
  await page.keyboard.type("stop quick");
  await active.getByText("Stop quick").waitFor();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Stop quick?" });
  await dialog.getByRole("button", { name: "Stop" }).press("Enter");
  await page.getByText("Stopped quick.").waitFor({ timeout: 60_000 });
  expect(await page.getByRole("dialog").count()).toBe(0);
  // The workspace itself, with the second entry reached by the arrows and back: a stopped workspace can be started.
  await page.keyboard.press("Control+k");
  await input.waitFor();
  await page.keyboard.type("quick");
  await active.getByText("quick", { exact: true }).waitFor();
  await palette.getByRole("option", { name: "Start quick" }).waitFor();
  await page.keyboard.press("ArrowDown");
  expect(await active.textContent()).not.toMatch(/^quick/);
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/@ada/quick");
  await page.keyboard.press("Control+k");
  await input.waitFor();
  await page.keyboard.type("no such thing");
  await palette.getByText("No results").waitFor();
  await run(place, ["delete", "quick", "-y"]);
});

it("lists shortcuts, searches, and tells where a link led, with the keyboard only", async () => {
  const { page } = await open(place, token);
  await page.goto("/templates");
  await page.getByRole("heading", { level: 1, name: "Templates" }).waitFor();
  await page.keyboard.press("?");
  const help = page.getByRole("dialog", { name: "Keyboard shortcuts" });
  await help.getByText("Open the command palette (Cmd+K on a Mac)").waitFor();
  await axe(page, "the keyboard shortcuts");
  await page.keyboard.press("Escape");
  await help.waitFor({ state: "detached" });
  // A link of the navigation: the focus and the announcement follow.
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Workspaces" }).press("Enter");
  await page.getByRole("status").getByText("Workspaces", { exact: true }).waitFor({ state: "attached" });
  expect(await page.evaluate(() => document.activeElement?.id)).toBe("main");
  await page.keyboard.press("/");
  expect(await page.evaluate(() => document.activeElement?.getAttribute("type"))).toBe("search");
  await page.keyboard.type("owner:me ?/");
  expect(await page.getByRole("dialog").count()).toBe(0);
  expect(await page.getByLabel("Search workspaces").inputValue()).toMatch(/\?\/$/);
  // An item of a menu leads to a page too.
  await page.getByRole("button", { name: "Admin" }).press("Enter");
  await page.getByRole("menuitem", { name: "Users" }).press("Enter");
  await page.getByRole("status").getByText("Users", { exact: true }).waitFor({ state: "attached" });
  await expect.poll(() => page.evaluate(() => document.activeElement?.id)).toBe("main");
});
