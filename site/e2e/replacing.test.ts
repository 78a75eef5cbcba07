// A start that would replace a disk asks first: it names the disk, changes nothing without an answer, and goes on with
// one.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { open, withBrowser } from "./browser";
import { api, run, until } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");
const dir = join(place.dir, "disks");

interface Workspace {
  outdated: boolean;
  latest_build: { id: string; build_number: number; status: string; template_version_name: string };
}

const workspace = () => api<Workspace>(place, token, "GET", "users/me/workspace/kept");

// The value of triggers, as in Terraform, decides whether the disk is replaced.
const pushDisk = async (template: string, triggers: string, version: string) => {
  mkdirSync(dir, { recursive: true });
  writeFileSync(
    join(dir, "main.tf"),
    `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "terraform_data" "disk" {
  triggers_replace = ${triggers}
}
`,
  );
  await run(place, ["templates", "push", template, "-d", dir, "-y", "--name", version]);
};

const push = (zone: string) => pushDisk("disks", `"${zone}"`, zone);

beforeAll(async () => {
  await push("fra1");
  await run(place, ["create", "kept", "-t", "disks", "-y"]);
  await push("muc1");
});

it("asks before an update replaces a disk", async () => {
  const { page } = await open(place, token);
  await page.goto("/@ada/kept");
  await page.getByRole("button", { name: "More for kept" }).click();
  await page.getByRole("menuitem", { name: "Update to the active version" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Update" }).click();
  const dialog = page.getByRole("dialog", { name: "Replace what kept keeps?" });
  await dialog.getByText("terraform_data.disk").waitFor({ timeout: 60_000 });
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.getByText("The start would lose data").waitFor();
  expect(await workspace()).toMatchObject({ outdated: true, latest_build: { template_version_name: "fra1" } });

  // It starts as it was.
  await page.getByRole("button", { name: "Start kept" }).first().click();
  await page.getByText("The start would lose data").waitFor({ state: "detached", timeout: 60_000 });
  await until("the workspace runs as before", async () => {
    const { status, template_version_name: version } = (await workspace()).latest_build;
    return status === "running" && version === "fra1";
  });

  // On another page load the note offers the same. The user types the workspace's name.
  await page.getByRole("button", { name: "More for kept" }).click();
  await page.getByRole("menuitem", { name: "Update to the active version" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Update" }).click();
  await dialog.waitFor({ timeout: 60_000 });
  await page.reload();
  await page.getByRole("button", { name: "Replace and start…" }).click();
  const go = dialog.getByRole("button", { name: "Replace and start" });
  expect(await go.isDisabled()).toBe(true);
  await dialog.getByLabel(/to confirm/).fill("kept");
  await go.click();
  await until("the workspace runs with the new version", async () => {
    const { status, template_version_name: version } = (await workspace()).latest_build;
    return status === "running" && version === "muc1";
  });
});

it("asks before a stop replaces a disk", async () => {
  await pushDisk("clock", "data.coder_workspace.me.transition", "first");
  await run(place, ["create", "dated", "-t", "clock", "-y"]);
  const { page } = await open(place, token);
  await page.goto("/@ada/dated");
  await page.getByRole("button", { name: "Stop dated" }).first().click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
  const dialog = page.getByRole("dialog", { name: "Replace what dated keeps?" });
  await dialog.getByText("terraform_data.disk").waitFor({ timeout: 60_000 });
  await dialog.getByLabel(/to confirm/).fill("dated");
  await dialog.getByRole("button", { name: "Replace and stop" }).click();
  await until("the workspace is stopped", async () => {
    const { latest_build: build } = await api<Workspace>(place, token, "GET", "users/me/workspace/dated");
    return build.status === "stopped";
  });
});
