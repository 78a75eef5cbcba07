// The documentation and the downloads that the server carries.
import { createHash } from "node:crypto";
import { expect, inject, it } from "vitest";
import { axe, fits, open, withBrowser } from "./browser";

withBrowser();
const place = inject("place");
const token = inject("token");

it("serves the documentation, with links that work", async () => {
  const { page } = await open(place, token);
  await page.goto("/workspaces");
  await page.getByRole("button", { name: "Account of ada" }).click();
  await page.getByRole("menuitem", { name: "Documentation" }).click();
  await page.waitForURL("**/docs");
  await page.getByRole("heading", { name: "Documentation", level: 1 }).waitFor();
  await axe(page, "the table of contents");
  await page.getByRole("link", { name: "Sign-in", exact: true }).click();
  await page.waitForURL("**/docs/sign-in");
  await page.getByRole("navigation", { name: "On this page" }).getByRole("link", { name: "Login types" }).click();
  expect(page.url()).toContain("#login-types");
  const section = page.getByRole("heading", { name: "Login types" });
  await expect.poll(() => section.evaluate((e) => e.getBoundingClientRect().top)).toBeLessThan(900);
  await axe(page, "a page of the documentation");
  // An address of a section, and a link to a decision.
  await page.goto("/docs/sign-in#groups-roles-and-organizations-from-claims");
  await page.getByRole("heading", { name: "Groups, roles and organizations from claims" }).waitFor();
  await expect.poll(() => page.evaluate(() => scrollY)).toBeGreaterThan(500);
  await page.goto("/docs/architecture");
  await page.getByRole("link", { name: "decision 16" }).click();
  await page.waitForURL("**/docs/decisions/0016-hole-punching");
  await page.getByRole("heading", { level: 1, name: /^16\./ }).waitFor();
  await page.goto("/docs/no-such-page");
  await page.getByText("The documentation has no page no-such-page.").waitFor();
});

it("searches the documentation, shows its pictures and leads from page to page", async () => {
  const { page } = await open(place, token);
  await page.goto("/docs/install");
  const box = page.getByRole("searchbox", { name: "Search the documentation" });
  await box.fill("quiet hours");
  await page.waitForURL("**/docs?q=quiet+hours");
  const results = page.getByRole("list", { name: "Results" });
  await results
    .getByRole("link", { name: /Quiet hours$/ })
    .first()
    .waitFor();
  await axe(page, "results of a search");
  await box.fill("quiet no-page-has-this-word");
  await page.getByText("No results").waitFor();
  await box.fill("quiet hours");
  await results.getByRole("link", { name: "Schedules, lifetimes and dormancy: Quiet hours" }).click();
  await page.waitForURL("**/docs/schedules#quiet-hours");
  const image = page.getByRole("img", { name: "Quiet hours on the account page" });
  await image.scrollIntoViewIfNeeded();
  await expect.poll(() => image.evaluate((e) => (e as HTMLImageElement).naturalWidth)).toBeGreaterThan(100);
  await axe(page, "a page with pictures");
  const around = page.getByRole("navigation", { name: "Previous and next page" });
  await around.getByRole("link").last().click();
  await page.waitForURL("**/docs/prebuilds");
  await around.getByRole("link").first().click();
  await page.waitForURL("**/docs/schedules");
  // Headings are in the palette.
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").waitFor();
  await page.keyboard.type("quiet hours");
  await page.getByRole("option", { name: /^Quiet hours/ }).click();
  await page.waitForURL("**/docs/schedules#quiet-hours");
});

it("shows the documentation at 390 px, and in dark mode", async () => {
  const { page } = await open(place, token, { width: 390, dark: true });
  for (const name of ["", "?q=database", "/operating", "/docs-are-missing", "/routes", "/decisions", "/settings"]) {
    await page.goto(`/docs${name}`);
    await page.getByRole("heading", { level: 1 }).or(page.getByText("Page not found")).first().waitFor();
    await fits(page, `/docs${name}`);
    // A row of a table is a list of its cells: none is out of sight.
    const wide = await page
      .locator(".prose div:has(> table)")
      .evaluateAll((tables) => tables.filter((t) => t.scrollWidth > t.clientWidth + 1).map((t) => t.textContent));
    expect(wide, `/docs${name}`).toEqual([]);
  }
  await axe(page, "the documentation in dark mode");
});

it("offers the command line for each system, with its checksum", async () => {
  const { page } = await open(place, token, { width: 390 });
  await page.goto("/workspaces");
  await page.getByRole("button", { name: "Account of ada" }).click();
  await page.getByRole("menuitem", { name: "Downloads" }).click();
  await page.waitForURL("**/downloads");
  await page.getByRole("button", { name: "Linux this computer", pressed: true }).waitFor();
  expect(await page.getByRole("textbox", { name: "install command" }).inputValue()).toBe(
    `curl -fsSL ${place.url}/install.sh | sh`,
  );
  const file = page.getByRole("link", { name: "coder-linux-amd64", exact: true });
  const body = await page.request.get((await file.getAttribute("href"))!);
  await page.getByRole("button", { name: "Copy the checksum of coder-linux-amd64" }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(
    createHash("sha256")
      .update(await body.body())
      .digest("hex"),
  );
  await axe(page, "downloads");
  await fits(page, "downloads");
  // A build of the repository has one platform only.
  await page.getByRole("button", { name: "Windows" }).click();
  expect(await page.getByRole("textbox", { name: "install command" }).inputValue()).toBe(
    `irm ${place.url}/install.ps1 | iex`,
  );
  await page.getByText("not on this server").first().waitFor();
  expect(await page.getByRole("link", { name: /^coder-windows/ }).count()).toBe(0);
  await page.getByText("make build SLIM=all").waitFor();
});
