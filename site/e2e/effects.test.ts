// What a template says about the look of a workspace and its form shows on the pages.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { open, withBrowser } from "./browser";
import { run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

// The agent of the template "process" with more, and a second agent, which nothing starts.
const more = `
resource "coder_agent" "absent" {
  os                  = "linux"
  arch                = "amd64"
  order               = 1
  connection_timeout  = 1
  troubleshooting_url = "https://example.com/help"
  display_apps {
    vscode                 = true
    vscode_insiders        = true
    web_terminal           = false
    ssh_helper             = false
    port_forwarding_helper = false
  }
}
resource "coder_app" "a" {
  agent_id     = coder_agent.main.id
  slug         = "last"
  display_name = "Last"
  url          = "http://localhost:1"
  icon         = "/icon/code.svg"
  order        = 9
  tooltip      = "Opens **slowly**"
  open_in      = "slim-window"
}
resource "coder_app" "b" {
  agent_id     = coder_agent.main.id
  slug         = "first"
  display_name = "First"
  url          = "http://localhost:1"
  order        = 2
}
resource "coder_app" "c" {
  agent_id = coder_agent.main.id
  slug     = "grouped"
  url      = "http://localhost:1"
  group    = "Databases"
}
resource "coder_app" "d" {
  agent_id = coder_agent.main.id
  slug     = "unseen"
  url      = "http://localhost:1"
  hidden   = true
}
resource "coder_script" "prints" {
  agent_id     = coder_agent.main.id
  display_name = "Prints"
  icon         = "/icon/docker.svg"
  run_on_start = true
  script       = "echo printed by the script"
}
resource "terraform_data" "shown" {
  input = coder_agent.absent.id
}
resource "terraform_data" "secretive" {}
resource "coder_metadata" "shown" {
  resource_id = terraform_data.shown.id
  icon        = "/icon/docker.svg"
  item {
    key   = "size"
    value = "12 GiB"
  }
  item {
    key       = "password"
    value     = "open-sesame"
    sensitive = true
  }
  item {
    key   = "nothing"
    value = null
  }
  item {
    key   = "blank"
    value = ""
  }
}
resource "coder_metadata" "secretive" {
  resource_id = terraform_data.secretive.id
  hide        = true
}
data "coder_parameter" "second" {
  name     = "second"
  default  = ""
  mutable  = true
  order    = 2
  icon     = "/icon/docker.svg"
}
data "coder_parameter" "first" {
  name  = "first"
  order = 1
  option {
    name        = "One"
    value       = "1"
    description = "The smaller one"
    icon        = "/icon/code.svg"
  }
  option {
    name  = "Two"
    value = "2"
  }
}
data "coder_workspace_preset" "big" {
  name        = "Big"
  description = "For heavy work"
  icon        = "/icon/widgets.svg"
  parameters  = { first = "2" }
}
`;

beforeAll(async () => {
  const dir = join(place.dir, "effects");
  mkdirSync(dir, { recursive: true });
  const base = readFileSync(join(place.dir, "process", "main.tf"), "utf8");
  const agent = 'resource "coder_agent" "main" {\n';
  const metadata = [
    'key = "b"\n    display_name = "Later"\n    script = "echo later-$((40+2))"\n    order = 2',
    'key = "a"\n    display_name = "Sooner"\n    script = "echo sooner"\n    order = 1',
    'key = "slow"\n    script = "sleep 60"\n    order = 3',
  ].map((text) => `  metadata {\n    ${text}\n    interval = 1\n    timeout = 1\n  }\n`);
  writeFileSync(join(dir, "main.tf"), base.replace(agent, `${agent}  order = 2\n${metadata.join("")}`) + more);
  await run(place, ["templates", "push", "effects", "-d", dir, "-y"]);
  await run(place, ["create", "effects", "-t", "effects", "-y", "--no-wait", "--parameter", "first=1"]);
});

it("shows agents, apps and resources as the template says", async () => {
  const { page } = await open(place, token);
  await page.goto("/@ada/effects");
  const cards = page.locator("section").filter({ has: page.getByRole("heading", { name: /^(main|absent)/ }) });
  const [absent, main] = [cards.nth(0), cards.nth(1)];
  await main.getByText("connected", { exact: true }).waitFor({ timeout: 60_000 });
  await absent.getByRole("heading", { name: "absent" }).waitFor();

  // The built-in apps that it chooses, and help when it does not connect.
  await absent.getByRole("button", { name: "VS Code Insiders" }).waitFor();
  await absent.getByRole("button", { name: "VS Code", exact: true }).waitFor();
  for (const name of ["Terminal", "JetBrains"]) expect(await absent.getByText(name, { exact: true }).count()).toBe(0);
  expect(await absent.getByRole("tab", { name: "Ports" }).count()).toBe(0);
  await absent.locator('a[href="https://example.com/help"]').waitFor({ timeout: 60_000 });
  await main.getByRole("link", { name: "Terminal" }).waitFor();
  await main.getByRole("button", { name: "JetBrains" }).waitFor();
  expect(await main.getByRole("button", { name: "VS Code Insiders" }).count()).toBe(0);
  await main.getByRole("tab", { name: "Ports" }).waitFor();

  // Its own apps.
  const apps = main.getByRole("link", { name: /^(First|Last|grouped|unseen)$/ });
  expect(await apps.allInnerTexts()).toEqual(["First", "Last", "grouped"].map((name) => expect.stringContaining(name)));
  const last = main.getByRole("link", { name: "Last" });
  expect(await last.getAttribute("title")).toBe("Opens slowly");
  expect(await last.locator("img").getAttribute("src")).toBe("/icon/code.svg");
  expect(await main.getByRole("group", { name: "Databases" }).getByRole("link").count()).toBe(1);

  // Metadata of the agent, in its order, with a time limit.
  const values = main.getByLabel("Metadata");
  await values.getByText("later-42").waitFor();
  await values.getByText("the script did not end within 1s").waitFor();
  expect((await values.locator("dt").allInnerTexts()).slice(-3)).toEqual(["Sooner", "Later", "slow"]);

  // A script's icon, beside what it prints.
  await main.getByRole("tab", { name: "Logs" }).click();
  const line = main
    .getByRole("log")
    .locator("div")
    .filter({ hasText: /^Prints\s*printed by the script$/ });
  expect(await line.last().locator("img").getAttribute("src")).toBe("/icon/docker.svg");

  // Resources and their metadata.
  const resources = page.locator("section").filter({ has: page.getByRole("heading", { name: "Resources" }) });
  const shown = resources.getByRole("listitem").filter({ hasText: "shown" });
  await shown.getByText("12 GiB").waitFor();
  expect(await shown.locator("img").getAttribute("src")).toBe("/icon/docker.svg");
  expect(await shown.innerText()).not.toContain("open-sesame");
  await shown.getByRole("button", { name: "Show secret value" }).click();
  await shown.getByText("open-sesame").waitFor();
  expect(await shown.innerText()).not.toContain("nothing");
  expect(await shown.innerText()).toContain("blank");
  expect(await resources.innerText()).not.toContain("secretive");
});

it("shows the form as the template says", async () => {
  const { page } = await open(place, token);
  await page.goto("/templates/effects/workspace");
  const first = page.locator("#parameter-first");
  await first.getByText("required").waitFor();
  const second = page.locator("#parameter-second");
  expect(await second.getByText("required").count()).toBe(0);
  expect(await second.locator("img").getAttribute("src")).toBe("/icon/docker.svg");
  const order = await page.locator("[id^=parameter-][role=group]").evaluateAll((all) => all.map((e) => e.id));
  expect(order.filter((id) => /first|second/.test(id))).toEqual(["parameter-first", "parameter-second"]);
  await page.getByText("For heavy work").waitFor();
  await page.getByRole("radio", { name: /^Big/ }).check();
  expect(await page.locator("main img").evaluateAll((all) => all.map((e) => e.getAttribute("src")))).toContain(
    "/icon/widgets.svg",
  );
  expect(await first.locator("input:checked").getAttribute("value")).toBe("2");
  await first.getByText("The smaller one").waitFor();
  expect(await first.locator("img").getAttribute("src")).toBe("/icon/code.svg");
});
