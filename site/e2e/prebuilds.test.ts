// A template's page tells its author what users of its prebuilt workspaces wait for, and why.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { axe, open, withBrowser } from "./browser";
import { api, run, until } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

beforeAll(async () => {
  const dir = join(place.dir, "pool");
  mkdirSync(dir, { recursive: true });
  writeFileSync(
    join(dir, "main.tf"),
    `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace_owner" "me" {}
data "coder_workspace_preset" "ready" {
  name = "Ready"
  prebuilds {
    instances = 1
  }
}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "machine" {
  input = data.coder_workspace_owner.me.name
}
`,
  );
  await run(place, ["templates", "push", "pool", "-d", dir, "-y"]);
  await until("a prebuilt workspace exists", async () => {
    const { id } = await api<{ id: string }>(place, token, "GET", "organizations/default/templates/pool");
    const pools = await api<{ claims?: string }[]>(place, token, "GET", `templates/${id}/prebuilds`);
    return pools[0]?.claims === "wait";
  });
});

// prebuilt lists those that no user has, by id.
async function prebuilt(): Promise<string[]> {
  const { workspaces } = await api<{ workspaces: { id: string }[] }>(
    place,
    token,
    "GET",
    "workspaces?q=owner:prebuilds",
  );
  return workspaces.map((w) => w.id);
}

it("shows why claims wait for their build", async () => {
  const { page } = await open(place, token);
  await page.goto("/templates/pool");
  await page.getByText("Wait for their build", { exact: true }).waitFor();
  const reason = page.getByText("a claim changes terraform_data.machine: it would differ in input");
  expect(await reason.textContent()).toMatch(/^main\.tf:17: /);
});

it("replaces all of them, with others for users", async () => {
  const before = await prebuilt();
  const { page } = await open(place, token);
  await page.goto("/templates/pool");
  await page.getByRole("button", { name: "Replace all" }).click();
  const dialog = page.getByRole("dialog", { name: "Replace all prebuilt workspaces?" });
  await axe(page, "replacing prebuilt workspaces");
  await dialog.getByRole("button", { name: "Replace" }).click();
  await dialog.waitFor({ state: "detached" });
  await until("another one is there", async () => {
    const after = await prebuilt();
    return after.length === 1 && after[0] !== before[0];
  });
});
