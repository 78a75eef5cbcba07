// Addresses that other programs open: a workspace's settings as editors name them, and the description of the API.
import { beforeAll, expect, inject, it } from "vitest";
import { axe, fits, open, withBrowser } from "./browser";
import { run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

beforeAll(() => run(place, ["create", "linked", "-t", "process", "-y"]));

it("leads the address that editors open to a workspace's settings", async () => {
  const { page } = await open(place, token);
  await page.goto("/@ada/linked/settings");
  await page.waitForURL("**/@ada/linked?tab=settings");
  await page
    .getByRole("tab", { name: "Settings", selected: true })
    .or(page.getByRole("link", { name: "Settings", exact: true }))
    .first()
    .waitFor();
});

it.each([
  ["api", 1280, false],
  ["api-dark", 1280, true],
  ["api-phone", 390, false],
] as const)("describes the API: %s", async (name, width, dark) => {
  const { page } = await open(place, undefined, { width, dark });
  await page.goto("/swagger");
  await page.getByRole("heading", { level: 1, name: "API reference" }).waitFor();
  await page.getByRole("link", { name: "workspaces", exact: true }).click();
  await page.getByRole("heading", { level: 2, name: "workspaces", exact: true }).waitFor();
  expect(await page.getByRole("article").count()).toBeGreaterThan(200);
  await fits(page, name);
  // All groups look alike: other colours and widths show in one of them.
  await axe(page, name, name === "api" ? undefined : ["header", 'section[aria-labelledby="workspaces"]']);
});
