import type { Locator } from "playwright-core";
import { beforeAll, expect, inject, it } from "vitest";
import { axe, fits, open, picture, withBrowser } from "./browser";
import { api, run, until } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

interface Workspace {
  id: string;
  latest_build: { id: string; status: string; build_number: number; job: { completed_at?: string } };
}

const workspace = (name: string) => api<Workspace>(place, token, "GET", `users/me/workspace/${name}`);

beforeAll(() => run(place, ["create", "list", "-t", "process", "-y"]));

it("lists, searches and shows changes without a reload", async () => {
  const { page } = await open(place, token);
  await page.goto("/workspaces");
  const row = page.getByRole("listitem").filter({ has: page.getByRole("link", { name: "list", exact: true }) });
  await row.getByText("running", { exact: true }).waitFor();
  await axe(page, "workspaces");
  await page.getByLabel("Search workspaces").fill("owner:me name:list status:stopped");
  await page.getByText("No results").waitFor();
  await page.getByLabel("Search workspaces").fill("owner:me template:process name:list");
  await row.waitFor();
  // The search is in the address.
  await page.reload();
  await row.waitFor();
  await page.getByLabel("Search workspaces").fill("colour:red");
  await page.getByText(/does not support colour/).waitFor();
  await page.getByLabel("Search workspaces").fill("owner:me");
  await row.getByText("running", { exact: true }).waitFor();
  await row.getByText(/^(direct|relayed)/).waitFor();
  await picture(page, "workspaces");
  // Another user stops it.
  await run(place, ["stop", "list", "-y"]);
  await row.getByText("Stopped").waitFor();
  await row.getByRole("button", { name: "Start list" }).click();
  await row.getByText("running", { exact: true }).waitFor({ timeout: 60_000 });
});

it("starts, stops, restarts and deletes", async () => {
  await run(place, ["create", "doomed", "-t", "process", "-y"]);
  const { page } = await open(place, token);
  await page.goto("/@ada/doomed");
  const heading = page.getByRole("heading", { level: 1 });
  await heading.getByText("Running").waitFor();
  await page.getByRole("button", { name: "Stop doomed" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
  await heading.getByText("Stopped").waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "Start doomed" }).click();
  await heading.getByText("Running").waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "More for doomed" }).click();
  await page.getByRole("menuitem", { name: "Restart" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Restart" }).click();
  await until("the restart", async () => (await workspace("doomed")).latest_build.build_number === 5);
  await heading.getByText("Running").waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "More for doomed" }).click();
  await page.getByRole("menuitem", { name: "Delete…" }).click();
  const dialog = page.getByRole("dialog");
  expect(await dialog.getByRole("button", { name: "Delete" }).isDisabled()).toBe(true);
  await axe(page, "a dialog");
  await dialog.getByLabel(/to confirm/).fill("doomed");
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.getByText("doomed was deleted").waitFor({ timeout: 60_000 });
});

it("sorts, selects, acts on all selected, and reports what happens out of sight", async () => {
  for (const name of ["many-2", "many-1"]) await run(place, ["create", name, "-t", "process", "-y"]);
  const { page } = await open(place, token);
  await page.goto("/workspaces?q=owner:me+name:many");
  const row = (name: string) =>
    page.getByRole("listitem").filter({ has: page.getByRole("link", { name, exact: true }) });
  // The way into the terminal is in the row.
  const terminal = row("many-1").getByRole("link", { name: "Terminal of many-1" });
  expect(await terminal.getAttribute("href")).toBe("/@ada/many-1.main/terminal");
  const first = page.locator('li[aria-posinset="1"]');
  await page.getByLabel("Sort").selectOption("Name");
  await first.getByRole("link", { name: "many-1", exact: true }).waitFor();
  await page.getByLabel("Sort").selectOption("Owner");
  await page.reload();
  expect(await page.getByLabel("Sort").inputValue()).toBe("owner");
  // All selected are stopped after one question.
  await page.getByLabel("Select all").check();
  const selected = page.getByRole("group", { name: "Selected workspaces" });
  expect(await selected.getByRole("button", { name: "Start" }).isDisabled()).toBe(true);
  await selected.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("dialog", { name: "Stop 2 workspaces?" }).getByRole("button", { name: "Stop" }).click();
  await page.getByText("Stopping 2 workspaces.").waitFor();
  await axe(page, "the list with a notice");
  for (const name of ["many-1", "many-2"]) await row(name).getByText("Stopped").waitFor({ timeout: 60_000 });
  expect(await terminal.count()).toBe(0);
  // Its start ends while another page is on screen.
  await page.getByRole("button", { name: "Start many-1" }).click();
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Templates" }).click();
  await page.getByText("Started many-1.").waitFor({ timeout: 60_000 });
  await page.goBack();
  await page.getByLabel("Select ada/many-1").check();
  await page.getByLabel("Select ada/many-2").check();
  await selected.getByRole("button", { name: "Delete…" }).click();
  const dialog = page.getByRole("dialog", { name: "Delete 2 workspaces?" });
  await dialog.getByLabel(/to confirm/).fill("delete 2");
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.getByText("No results").waitFor({ timeout: 60_000 });
});

it("reports that another user deleted what is on screen", async () => {
  await run(place, ["create", "gone", "-t", "process", "-y"]);
  const { page } = await open(place, token);
  await page.goto("/@ada/gone?tab=settings");
  await page.getByRole("heading", { name: "Autostop" }).waitFor();
  await run(place, ["delete", "gone", "-y"]);
  await page.getByText("gone was deleted").waitFor();
  await page.goto("/@ada/never-there");
  await page.getByText("Workspace not found").waitFor();
});

it("shows a workspace's agents, ways in, builds and settings", async () => {
  const { page } = await open(place, token);
  await page.goto("/@ada/list");
  await page.getByText("connected", { exact: true }).waitFor();
  // The install command is the shell's here, and runs as it stands.
  const install = await page.getByLabel("install command", { exact: true }).inputValue();
  expect(install).toBe(`curl -fsSL ${place.url}/install.sh | sh`);
  expect((await fetch(install.split(" ")[2] ?? "")).headers.get("content-type")).toContain("text/plain");
  expect(await page.getByLabel("login command", { exact: true }).inputValue()).toBe(`coder login ${place.url}`);
  expect(await page.getByLabel("SSH command", { exact: true }).inputValue()).toBe("coder ssh list");
  expect(await page.getByLabel("port-forward command", { exact: true }).inputValue()).toContain(
    "coder port-forward list",
  );
  await page.getByRole("button", { name: "Copy SSH command" }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe("coder ssh list");
  const system = page.getByRole("group", { name: "System of this computer" });
  await system.getByRole("button", { name: "Windows" }).click();
  expect(await page.getByLabel("install command", { exact: true }).inputValue()).toBe(
    `irm ${place.url}/install.ps1 | iex`,
  );
  // Every editor has an icon of its own.
  const icons = (of: Locator) =>
    of.locator("img").evaluateAll(async (found) => {
      await Promise.all(found.map((icon) => (icon as HTMLImageElement).decode()));
      return found.map((icon) => new URL((icon as HTMLImageElement).src).pathname);
    });
  expect(await icons(page.getByRole("button", { name: "VS Code", exact: true }))).toEqual(["/icon/code.svg"]);
  expect(await icons(page.getByRole("button", { name: "JetBrains" }))).toEqual(["/icon/jetbrains.svg"]);
  await page.getByRole("button", { name: "Other editors" }).click();
  await page.getByRole("menu").waitFor();
  expect(await page.getByRole("menuitem").allTextContents()).toEqual([
    "Cursor",
    "Windsurf",
    "VSCodium",
    "Zed (needs coder config-ssh)",
  ]);
  expect(await icons(page.getByRole("menu"))).toEqual(
    ["cursor", "windsurf", "vscodium", "zed"].map((name) => `/icon/${name}.svg`),
  );
  await axe(page, "other editors");
  await page.keyboard.press("Escape");
  for (const tab of ["Logs", "Scripts", "Path"]) {
    await page.getByRole("tab", { name: tab }).click();
    await axe(page, `a workspace's ${tab}`);
  }
  await page.getByRole("link", { name: "Builds" }).click();
  const phases = page.getByRole("list", { name: "Phases of the build" });
  for (const phase of [
    "main: connecting",
    "Starting workspace",
    /^terraform_data\.\S+ created$/,
    "main: Startup Script",
  ])
    await phases.getByText(phase).first().waitFor();
  await page.getByRole("link", { name: "#1 start" }).click();
  await page.getByText("Build #1: start").waitFor();
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByLabel("Start on a schedule").check();
  await page.getByLabel("Time", { exact: true }).fill("07:30");
  await page.getByLabel("Time zone").selectOption("Europe/Berlin");
  await page.getByLabel("Sat").check({ force: true });
  await axe(page, "a workspace's settings");
  await page
    .locator("section", { has: page.getByRole("heading", { name: "Autostart" }) })
    .getByRole("button", { name: "Save" })
    .click();
  await page.getByText("07:30 Mon, Tue, Wed, Thu, Fri, Sat (Europe/Berlin)").waitFor();
  expect(await workspace("list")).toMatchObject({ autostart_schedule: "CRON_TZ=Europe/Berlin 30 7 * * 1,2,3,4,5,6" });
  // Immediately with other parameters.
  await page.getByRole("radio", { name: "sh", exact: true }).check();
  await page.getByRole("button", { name: "Save and restart" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Restart" }).click();
  await page.waitForURL("**/@ada/list", { timeout: 60_000 });
  await page.getByRole("button", { name: "Show log" }).click({ timeout: 60_000 });
  await page.getByText("/bin/sh").waitFor({ timeout: 60_000 });
});

it("is usable at 390 px, and with the keyboard", async () => {
  const { page } = await open(place, token, { width: 390 });
  await page.goto("/workspaces");
  await page.getByRole("link", { name: "list", exact: true }).waitFor();
  await fits(page, "workspaces");
  await picture(page, "workspaces-phone");
  await page.goto("/@ada/list");
  await page.getByText("connected", { exact: true }).waitFor({ timeout: 60_000 });
  await fits(page, "a workspace");
  await page.goto("/workspaces");
  await page.getByRole("link", { name: "list", exact: true }).waitFor();
  await page.keyboard.press("Tab");
  expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("Skip to content");
  await page.getByRole("button", { name: "More for list" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("menuitem", { name: "Stop" }).waitFor();
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.activeElement?.getAttribute("aria-label") === "More for list");
});

it("keeps the columns and searches of a user", async () => {
  const { page } = await open(place, token);
  await page.goto("/workspaces?q=owner:me status:running list");
  const row = page.getByRole("listitem").filter({ has: page.getByRole("link", { name: "list", exact: true }) });
  await row.getByText(/^used /).waitFor();
  await page.getByRole("button", { name: "View…" }).click();
  const dialog = page.getByRole("dialog", { name: "Saved searches and columns" });
  await dialog.getByLabel("Save owner:me status:running list as").fill("Running lists");
  await dialog.getByRole("button", { name: "Save search" }).click();
  await dialog.getByRole("button", { name: "Running lists", exact: true }).waitFor();
  await axe(page, "saved searches and columns");
  await dialog.getByLabel("Last used").click();
  await dialog.getByRole("checkbox", { name: "Last used", checked: false }).waitFor();
  await dialog.getByLabel("Template version").click();
  await dialog.getByRole("checkbox", { name: "Template version", checked: true }).waitFor();
  await dialog.getByRole("button", { name: "Done" }).click();
  await row.getByText(/^used /).waitFor({ state: "detached" });

  // On another computer, which is a phone.
  const other = await open(place, token, { width: 390, dark: true });
  await other.page.goto("/workspaces");
  await other.page.getByRole("button", { name: "View…" }).click();
  await other.page.getByRole("button", { name: "Running lists", exact: true }).waitFor();
  await fits(other.page, "saved searches and columns");
  await other.page.getByRole("button", { name: "Running lists", exact: true }).click();
  await other.page.waitForURL(/status(:|%3A)running/);
  await other.page.getByRole("link", { name: "list", exact: true }).waitFor();
  expect(await other.page.getByText(/^used /).count()).toBe(0);
  await other.page.getByRole("button", { name: "View…" }).click();
  await other.page.getByRole("button", { name: "Remove Running lists" }).click();
  await other.page.getByRole("list", { name: "Saved searches" }).waitFor({ state: "detached" });
  expect(await api(place, token, "GET", "users/me/preferences")).toMatchObject({
    saved_searches: [],
    workspace_columns: ["status", "path", "version", "apps"],
  });
  // The other tests' lists have the default ones.
  await api(place, token, "PUT", "users/me/preferences", { workspace_columns: ["status", "path", "used", "apps"] });
});
