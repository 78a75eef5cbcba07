// A region proxy that the dashboard opens terminals and ports at, and leaves when it is killed.
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import type { Page } from "playwright-core";
import { axe, open, withBrowser } from "./browser";
import { Proxy, run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");
let proxy: Proxy;

beforeAll(async () => {
  await run(place, ["create", "regional", "-t", "process", "-y"]);
  proxy = await Proxy.start(place, "eu");
});

afterAll(() => proxy?.stop());

const elsewhere = { expect: /a request to another host: (http|ws):\/\/localhost:/ };

const shows = (page: Page, text: string) =>
  page.waitForFunction(
    (t) =>
      [...document.querySelectorAll(".xterm-rows > div")].some((r) =>
        (r as HTMLElement).innerText.replaceAll("\u00a0", " ").includes(t),
      ),
    text,
  );

it("opens apps and terminals at the chosen region, and at the server when that is killed", async () => {
  const { page, context } = await open(place, token, elsewhere);
  await page.goto("/@ada/regional");
  await page.getByRole("button", { name: /^Region: / }).click();
  const item = page.getByRole("menuitem", { name: /^eu/ });
  await item.getByText(/^\d+ ms$/).waitFor();
  await page
    .getByRole("menuitem", { name: /^Default/ })
    .getByText(/^\d+ ms$/)
    .waitFor();
  await axe(page, "menu of regions");
  await item.click();
  await page.getByRole("button", { name: "Region: eu" }).waitFor();

  const tab = await context.newPage();
  await tab.goto("/@ada/regional.main/terminal");
  await tab.locator('[data-terminal="open"][data-region="eu"]').waitFor();
  await tab.locator(".xterm-helper-textarea").focus();
  await tab.keyboard.type("kept=yes; echo a$((6*7))b\n");
  await shows(tab, "a42b");
  // The choice is remembered, and the session is the same one.
  await tab.reload();
  await tab.locator('[data-terminal="open"][data-region="eu"]').waitFor();
  await tab.locator(".xterm-helper-textarea").focus();
  await tab.keyboard.type("echo $kept-again\n");
  await shows(tab, "yes-again");

  await proxy.stop("SIGKILL");
  await tab.locator('[data-terminal="open"][data-region=""]').waitFor();
  await tab.keyboard.type("echo $kept-here\n");
  await shows(tab, "yes-here");
  await page.getByRole("button", { name: "Region: Default" }).waitFor();

  await page.goto("/connectionlog");
  await page.getByLabel("Search the connection log").fill("type:reconnecting_pty workspace_owner:ada");
  await page.getByRole("cell", { name: "proxied by eu" }).first().waitFor();
});

it("shows no choice without regions", async () => {
  await run(place, ["wsproxy", "delete", "eu", "-y"]);
  const { page } = await open(place, token);
  const asked = page.waitForResponse((r) => r.url().endsWith("/api/v2/regions"));
  await page.goto("/workspaces");
  await asked;
  expect(await page.getByRole("button", { name: /^Region: / }).count()).toBe(0);
});

it("creates region proxies, replaces their tokens, and deletes them", async () => {
  const { page } = await open(place, token);
  await page.goto("/health");
  await page.getByRole("link", { name: "Regions" }).click();
  const regions = page.getByRole("region", { name: "Regions" });
  await regions.getByRole("row").filter({ hasText: "primary" }).getByText("ok", { exact: true }).waitFor();
  await page.getByRole("button", { name: "New region proxy" }).click();
  await page.getByLabel("Name", { exact: true }).fill("primary");
  await page.getByRole("button", { name: "Create region proxy" }).click();
  await page.getByRole("dialog").getByText("is reserved").waitFor();
  await page.getByLabel("Name", { exact: true }).fill("asia");
  await page.getByLabel("Display name").fill("Tokyo");
  await page.getByRole("button", { name: "Create region proxy" }).click();
  const shown = page.getByRole("textbox", { name: "proxy token" });
  const first = await shown.inputValue();
  expect(first).toMatch(/^cmwp_\w{43}$/);
  await axe(page, "a region proxy's token");
  await page.getByRole("button", { name: "Done" }).click();
  const row = regions.getByRole("row").filter({ hasText: "asia" });
  await row.getByText("Tokyo").waitFor();
  await row.getByText("unregistered").waitFor();
  await axe(page, "regions");

  await page.getByRole("button", { name: "Replace the token of asia" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Replace token" }).click();
  const second = await shown.inputValue();
  expect(second).toMatch(/^cmwp_\w{43}$/);
  expect(second).not.toBe(first);
  await page.getByRole("button", { name: "Done" }).click();

  await page.getByRole("button", { name: "Delete asia" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await row.waitFor({ state: "detached" });
  expect(await page.getByRole("button", { name: "Delete primary" }).count()).toBe(0);
});
