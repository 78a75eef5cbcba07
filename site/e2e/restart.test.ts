// The server restarts a workspace: it checks the start first, and continues when the page is closed. Masked values stay
// masked.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { open, withBrowser } from "./browser";
import { api, run, until } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

interface Workspace {
  latest_build: { id: string; build_number: number; status: string };
}

const workspace = (name: string) => api<Workspace>(place, token, "GET", `users/me/workspace/${name}`);

const source = (more: string) => `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_parameter" "api_key" {
  name         = "api_key"
  display_name = "API key"
  mutable      = true
  styling      = jsonencode({ mask_input = true })
}
${more}
resource "terraform_data" "x" {
  input = sha256(data.coder_parameter.api_key.value)
}
`;

const dir = join(place.dir, "again");

beforeAll(async () => {
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "main.tf"), source(""));
  await run(place, ["templates", "push", "again", "-d", dir, "-y"]);
  await run(place, ["create", "again", "-t", "again", "-y", "--parameter", "api_key=sk-secret"]);
});

it("shows a masked parameter only when it is asked to", async () => {
  const { page } = await open(place, token);
  for (const path of ["/@ada/again", "/@ada/again/builds/1", "/@ada/again?tab=settings"]) {
    await page.goto(path);
    await page.getByRole("heading", { level: 1 }).getByText("Running").waitFor();
    if (path.endsWith("settings"))
      expect(await page.locator("#parameter-api_key-input").getAttribute("type")).toBe("password");
    else if (path.endsWith("1")) await page.getByRole("button", { name: "Show secret value" }).waitFor();
    expect(await page.locator("body").innerText()).not.toContain("sk-secret");
  }
  await page.goto("/@ada/again/builds/1");
  await page.getByRole("button", { name: "Show secret value" }).click();
  await page.getByText("sk-secret").waitFor();
});

it("restarts a workspace after its page is closed", async () => {
  const { page } = await open(place, token);
  await page.goto("/@ada/again");
  await page.getByRole("button", { name: "More for again" }).click();
  const ordered = page.waitForResponse((r) => r.url().endsWith("/restart"));
  await page.getByRole("menuitem", { name: "Restart" }).click();
  await page.getByRole("dialog", { name: "Restart again?" }).getByRole("button", { name: "Restart" }).click();
  expect((await ordered).status()).toBe(201);
  await page.close();
  await until("the workspace runs again", async () => {
    const { build_number: number, status } = (await workspace("again")).latest_build;
    return number === 3 && status === "running";
  });
});

it("saves parameters only when one differs, and asks before it restarts", async () => {
  const { page } = await open(place, token);
  const orders: string[] = [];
  page.on("request", (r) => {
    if (/\/(restart|builds)$/.test(r.url()) && r.method() === "POST") orders.push(r.url());
  });
  await page.goto("/@ada/again?tab=settings");
  const save = page.getByRole("button", { name: "Save and restart" });
  const key = page.locator("#parameter-api_key-input");
  await page.getByText("Change a value to save it.").waitFor();
  expect(await save.isDisabled()).toBe(true);
  await key.fill("sk-other");
  await page.getByText("Change a value to save it.").waitFor({ state: "detached" });
  await key.fill("sk-secret");
  await page.getByText("Change a value to save it.").waitFor();
  expect(await save.isDisabled()).toBe(true);
  await key.fill("sk-other");
  await save.click();
  const dialog = page.getByRole("dialog", { name: "Restart again?" });
  await dialog.getByText(/Running programs and sessions end/).waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await dialog.waitFor({ state: "detached" });
  expect(orders).toEqual([]);
  expect((await workspace("again")).latest_build.build_number).toBe(3);
  await save.click();
  await dialog.getByRole("button", { name: "Restart" }).click();
  await page.waitForURL("**/@ada/again");
  await until("the workspace runs with the new value", async () => {
    const { build_number: number, status } = (await workspace("again")).latest_build;
    return number === 5 && status === "running";
  });
  expect(orders).toEqual([expect.stringMatching(/\/restart$/)]);
});

it("refuses an invalid restart before it stops anything", async () => {
  writeFileSync(
    join(dir, "main.tf"),
    source(`data "coder_parameter" "team" {\n  name    = "team"\n  mutable = true\n}\n`),
  );
  await run(place, ["templates", "push", "again", "-d", dir, "-y"]);
  await run(place, ["autoupdate", "again", "always"]);
  const { page } = await open(place, token);
  await page.goto("/@ada/again");
  await page.getByRole("button", { name: "More for again" }).click();
  await page.getByRole("menuitem", { name: "Restart" }).click();
  const dialog = page.getByRole("dialog", { name: "Restart again?" });
  await dialog.getByRole("button", { name: "Restart" }).click();
  await dialog.getByRole("alert").getByText(/team/).waitFor();
  expect((await workspace("again")).latest_build).toMatchObject({ build_number: 5, status: "running" });
});
