// Provisioners, the queue, health, the overview of the deployment and the mesh.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { axe, fits, open, picture, withBrowser } from "./browser";
import { run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

beforeAll(() => run(place, ["create", "meshed", "-t", "process", "-y"]));

it("shows provisioners and why a job waits, and cancels the job", async () => {
  const dir = join(place.dir, "tagged");
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "main.tf"), 'resource "terraform_data" "x" {}\n');
  const { page } = await open(place, token);
  await page.goto("/templates/new");
  await page.getByRole("button", { name: "Upload a folder" }).click();
  await page.getByLabel("Template folder").setInputFiles(dir);
  await page.getByLabel("Provisioner tags").fill("environment=on-prem");
  await page.getByRole("button", { name: "Import" }).click();
  await page
    .getByText(/environment=on-prem/)
    .first()
    .waitFor();

  await page.goto("/provisioners");
  await page.getByRole("region", { name: "Provisioners" }).getByText("idle").first().waitFor();
  const job = page.getByRole("region", { name: "Jobs" }).getByRole("row").filter({ hasText: "environment=on-prem" });
  await job.getByText(/no provisioner/i).waitFor();
  await axe(page, "provisioners");
  await picture(page, "provisioners");
  await job.getByRole("button", { name: /Cancel/ }).click();
  await job.waitFor({ state: "detached" });
});

it("makes and deletes provisioner keys", async () => {
  const { page } = await open(place, token);
  await page.goto("/provisioners");
  await page.getByRole("button", { name: "New key" }).click();
  await page.getByLabel("Name", { exact: true }).fill("office");
  await page.getByLabel("Tags", { exact: true }).fill("environment=office");
  await page.getByRole("button", { name: "Create key" }).click();
  expect(await page.getByRole("textbox", { name: "provisioner key" }).inputValue()).not.toBe("");
  await page.getByRole("button", { name: "Done" }).click();
  const row = page.getByRole("region", { name: "Provisioner keys" }).getByRole("row").filter({ hasText: "office" });
  await row.getByText("environment=office").waitFor();
  await page.getByRole("button", { name: "Delete key office" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await row.waitFor({ state: "detached" });
});

it("shows the server's health, with what to do", async () => {
  const { page } = await open(place, token);
  await page.goto("/health");
  for (const section of ["Database", "Access URL", "Relay", "Websocket", "Provisioners"])
    await page.getByRole("heading", { name: new RegExp(section, "i") }).waitFor();
  await axe(page, "health");
  await picture(page, "health");
});

it("shows owners the deployment: what runs, what it costs, versions and settings", async () => {
  for (const look of [{}, { dark: true }, { width: 390 }]) {
    const what = `deployment ${JSON.stringify(look)}`;
    const { page } = await open(place, token, look);
    await page.goto("/deployment");
    await page.getByText(/^running, of \d+$/).waitFor();
    await page.getByRole("img", { name: /^Builds by day: at most [1-9]/ }).waitFor();
    await page.getByRole("region", { name: "Servers" }).getByText("http://").waitFor();
    await page.getByRole("region", { name: "Versions of agents" }).getByRole("row").nth(1).waitFor();
    await page.getByLabel("Costs by", { exact: true }).selectOption({ label: "By user" });
    const costs = page.getByRole("region", { name: "Costs by user" });
    await costs.getByRole("link", { name: "ada", exact: true }).waitFor();
    await axe(page, what);
    await fits(page, what);
    if (Object.keys(look).length === 0) await picture(page, "deployment");
    await page.getByRole("link", { name: "Settings", exact: true }).click();
    await page.getByLabel("Search settings").fill("wildcard environment");
    await page.getByRole("region", { name: "Settings" }).getByText("--wildcard-access-url", { exact: true }).waitFor();
    await axe(page, `settings, ${what}`);
    await fits(page, `settings, ${what}`);
  }
});

it("draws the mesh, and shows a new peer without a reload", async () => {
  const { page } = await open(place, token);
  await page.goto("/mesh");
  const peers = page.getByRole("region", { name: "Peers" });
  await peers.getByText("provisioner").first().waitFor();
  await peers.getByRole("row").filter({ hasText: "agent" }).first().waitFor();
  expect(await page.locator("main svg line").count()).toBeGreaterThan(0);
  await axe(page, "mesh");
  await picture(page, "mesh");
  const agents = await peers.getByRole("row").filter({ hasText: "agent" }).count();
  await run(place, ["create", "joining", "-t", "process", "-y"]);
  await page.waitForFunction(
    (n) => [...document.querySelectorAll("tbody tr")].filter((r) => r.textContent?.includes("agent")).length > n,
    agents,
  );
});

it("is usable at 390 px: tables become lists", async () => {
  const { page } = await open(place, token, { width: 390, dark: true });
  for (const [path, seen] of [
    ["/provisioners", "built-in-0@"],
    ["/mesh", "built-in-0@"],
    ["/users", "ada@example.com"],
    ["/health", "Websockets"],
    ["/account", "SSH public key"],
    ["/templates/process/versions", "succeeded"],
    ["/templates/process/resources", "terraform_data"],
    ["/@ada/meshed/builds/1", "Phases of the build"],
  ]) {
    await page.goto(path!);
    await (seen!.startsWith("Phases") ? page.getByRole("list", { name: seen! }) : page.getByText(seen!))
      .first()
      .waitFor();
    await fits(page, path!);
    await axe(page, `${path} at 390 px`);
    // Nothing has to be moved sideways within a table.
    expect(
      await page
        .locator("table")
        .evaluateAll((all) => all.filter((t) => t.scrollWidth > t.parentElement!.clientWidth).length),
      path!,
    ).toBe(0);
  }
  await page.goto("/provisioners");
  const daemon = page.getByRole("row", { name: /^built-in-0@/ });
  await daemon.waitFor();
  expect(await daemon.getByRole("cell").count()).toBe(7);
  await picture(page, "provisioners-phone");
});
