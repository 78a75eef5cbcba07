// What changes a workspace beyond starting and stopping it: a new version, more time, a way out of the queue, an end
// without destroying, an end that takes its time.
import { once } from "node:events";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { axe, fits, open, picture, withBrowser } from "./browser";
import { api, run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

interface Workspace {
  id: string;
  outdated: boolean;
  latest_build: {
    id: string;
    template_version_name: string;
    build_number: number;
    deadline?: string;
    job: { status: string };
  };
}

const workspace = (name: string) => api<Workspace>(place, token, "GET", `users/me/workspace/${name}`);

beforeAll(() => cpSync(join(place.dir, "process"), join(place.dir, "moving"), { recursive: true }));

it("updates a workspace to its template's active version", async () => {
  const dir = join(place.dir, "moving");
  await run(place, ["templates", "push", "moving", "-d", dir, "-y", "--name", "first"]);
  await run(place, ["create", "older", "-t", "moving", "-y"]);
  const { page } = await open(place, token);
  await page.goto("/@ada/older");
  const heading = page.getByRole("heading", { level: 1 });
  await heading.getByText("Running").waitFor();
  await page.getByRole("button", { name: "More for older" }).click();
  await page.getByRole("menu").waitFor();
  expect(await page.getByRole("menuitem", { name: /Update/ }).count()).toBe(0);
  await page.keyboard.press("Escape");

  const team = 'data "coder_parameter" "team" {\n  name    = "team"\n  mutable = true\n}\n';
  const added = 'resource "terraform_data" "added" {}\n';
  const before = readFileSync(join(dir, "main.tf"), "utf8");
  writeFileSync(join(dir, "main.tf"), `${before}\n# another version\n${team}${added}`);
  await run(place, ["templates", "push", "moving", "-d", dir, "-y", "--name", "second", "-m", "Teams have names"]);
  await page.getByText("Update available").waitFor();
  await page.getByText(/^Version second/).waitFor();
  await axe(page, "an update");
  await page.getByRole("link", { name: "See changes" }).click();
  await page.getByText("# another version").waitFor();
  await page.goBack();

  // The dialog says what the update does, and asks for what is new.
  await page.getByRole("button", { name: "Update…" }).press("Enter");
  const dialog = page.getByRole("dialog", { name: "Update older?" });
  await dialog.getByText(/^From version first to second\./).waitFor();
  await dialog.getByText("Teams have names").waitFor();
  await dialog.getByRole("textbox", { name: "team" }).fill("red");
  await dialog.getByText(/^From a plan with the workspace/).waitFor({ timeout: 60_000 });
  await dialog.getByRole("list", { name: "Created" }).getByText("terraform_data.added").waitFor();
  await dialog.getByRole("button", { name: "Show the changes of 1 file" }).click();
  await dialog.getByText("# another version").waitFor();
  await axe(page, "an update's dialog", ["dialog"]);
  await picture(page, "update");
  await page.emulateMedia({ colorScheme: "dark" });
  await page.setViewportSize({ width: 390, height: 844 });
  await fits(page, "an update's dialog on a phone");
  await axe(page, "an update's dialog on a phone, dark", ["dialog"]);
  await picture(page, "update-phone");
  await page.keyboard.press("Escape");
  await page.locator("dialog").waitFor({ state: "detached" });
  expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("Update…");
  await page.keyboard.press("Enter");
  await dialog.getByRole("textbox", { name: "team" }).fill("red");
  await dialog.getByRole("button", { name: "Update", exact: true }).click();
  await page.getByText("Update available").waitFor({ state: "detached", timeout: 60_000 });
  await heading.getByText("Running").waitFor({ timeout: 60_000 });
  expect(await workspace("older")).toMatchObject({
    outdated: false,
    latest_build: { template_version_name: "second", build_number: 3 },
  });
  const { id } = (await workspace("older")).latest_build;
  const values = await api<{ name: string; value: string }[]>(place, token, "GET", `workspacebuilds/${id}/parameters`);
  expect(values).toContainEqual(expect.objectContaining({ name: "team", value: "red" }));
});

it("extends a workspace by an hour", async () => {
  await run(place, ["create", "limited", "-t", "process", "-y", "--stop-after", "2h"]);
  const before = Date.parse((await workspace("limited")).latest_build.deadline!);
  const { page } = await open(place, token);
  await page.goto("/@ada/limited?tab=settings");
  await page.getByText(/^Stops in 2 h\./).waitFor();
  await page.getByRole("button", { name: "Extend by 1 hour" }).click();
  await page.getByText(/^Stops in 3 h\./).waitFor();
  expect(Date.parse((await workspace("limited")).latest_build.deadline!) - before).toBe(3_600_000);

  // The page counts down the last minutes.
  const soon = Date.now() + 5 * 60_000;
  const { id } = await workspace("limited");
  await api(place, token, "PUT", `workspaces/${id}/extend`, { deadline: new Date(soon).toISOString() });
  await page.goto("/@ada/limited");
  const left = page.getByText(/ left\. Running programs end then\./);
  await left.waitFor();
  await axe(page, "a workspace that stops soon");
  await page.getByRole("button", { name: "Extend by 1 hour" }).click();
  await left.waitFor({ state: "detached" });
  expect(Date.parse((await workspace("limited")).latest_build.deadline!) - soon).toBe(3_600_000);
});

it("counts down the time of stop scripts", async () => {
  // What connects to the door waits there until the test opens it.
  const waiting = new Set<Socket>();
  let opened = false;
  const door = createServer((s) => {
    s.on("error", () => {});
    if (opened) s.end();
    else waiting.add(s);
  }).listen(0, "127.0.0.1");
  await once(door, "listening");
  const wait = `bash -c 'cat </dev/tcp/127.0.0.1/${(door.address() as AddressInfo).port}'`;
  const dir = join(place.dir, "gentle");
  cpSync(join(place.dir, "process"), dir, { recursive: true });
  writeFileSync(
    join(dir, "last.tf"),
    `
resource "coder_script" "last" {
  agent_id     = coder_agent.main.id
  display_name = "Last"
  run_on_stop  = true
  script       = "${wait}"
}
resource "terraform_data" "held" {
  count      = data.coder_workspace.me.start_count
  depends_on = [terraform_data.process]
  provisioner "local-exec" {
    when    = destroy
    command = "${wait}"
  }
}
`,
  );
  await run(place, ["templates", "push", "gentle", "-d", dir, "-y"]);
  await run(place, ["create", "gentle", "-t", "gentle", "-y"]);
  const { page } = await open(place, token);
  await page.goto("/@ada/gentle");
  await page.getByRole("heading", { level: 1 }).getByText("Running").waitFor();
  await run(place, ["stop", "gentle", "-y", "--no-wait"]);
  await page.getByText("Stop scripts run: main").waitFor();
  await page.getByText(/ left at most\./).waitFor();
  opened = true;
  for (const s of waiting) s.end();
  await page.getByRole("heading", { level: 1 }).getByText("Stopped").waitFor({ timeout: 60_000 });
  expect(await page.getByText("Stop scripts run").count()).toBe(0);
  door.close();
});

it("cancels a build that waits", async () => {
  await run(place, [
    "create",
    "queued",
    "-t",
    "process",
    "-y",
    "--no-wait",
    "--provisioner-tag",
    "environment=nowhere",
  ]);
  const { page } = await open(place, token);
  await page.goto("/@ada/queued");
  const heading = page.getByRole("heading", { level: 1 });
  await heading.getByText("Pending").waitFor();
  await page
    .getByRole("status")
    .getByText(/No provisioner online has environment=nowhere/)
    .waitFor();
  await page
    .getByText("Start a provisioner with environment=nowhere, or cancel the job and choose other tags.")
    .waitFor();
  expect(await run(place, ["show", "queued"])).toContain("Start a provisioner with environment=nowhere");
  await page.getByRole("button", { name: "Cancel the build of queued" }).click();
  await heading.getByText("Canceled").waitFor();
  expect((await workspace("queued")).latest_build.job.status).toBe("canceled");
  await page.getByRole("button", { name: "Start queued" }).waitFor();
});

it("deletes a workspace whose resources cannot be destroyed", async () => {
  const dir = join(place.dir, "stuck");
  mkdirSync(dir, { recursive: true });
  writeFileSync(
    join(dir, "main.tf"),
    `
resource "terraform_data" "x" {
  provisioner "local-exec" {
    when    = destroy
    command = "exit 7"
  }
}
`,
  );
  await run(place, ["templates", "push", "stuck", "-d", dir, "-y"]);
  await run(place, ["create", "stuck", "-t", "stuck", "-y"]);
  const { page } = await open(place, token);
  await page.goto("/@ada/stuck");
  const heading = page.getByRole("heading", { level: 1 });
  await heading.getByText("Running").waitFor();
  const remove = async (item: string, action: string) => {
    await page.getByRole("button", { name: "More for stuck" }).click();
    await page.getByRole("menuitem", { name: item }).click();
    await page
      .getByRole("dialog")
      .getByLabel(/to confirm/)
      .fill("stuck");
    await page.getByRole("dialog").getByRole("button", { name: action }).click();
  };
  await remove("Delete…", "Delete");
  await heading.getByText("Failed").waitFor({ timeout: 60_000 });
  await page
    .getByText(/exit status 7/)
    .first()
    .waitFor();
  await remove("Delete without destroying resources…", "Delete");
  await page.getByText("stuck was deleted").waitFor({ timeout: 60_000 });
});
