// What a workspace's page shows of a start: the logs while it lasts, one line after a good one, and the diagnosis of a
// bad one, which is the command line's.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, inject, it } from "vitest";
import { axe, fits, open, withBrowser } from "./browser";
import { run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

const script = (name: string, text: string) => `
resource "coder_script" "${name}" {
  agent_id     = coder_agent.main.id
  display_name = "${name}"
  run_on_start = true
  script       = "${text}"
}
`;

// push makes a template of processes with more in it.
async function push(name: string, more: string) {
  const dir = join(place.dir, name);
  cpSync(join(place.dir, "process"), dir, { recursive: true });
  writeFileSync(join(dir, "main.tf"), readFileSync(join(dir, "main.tf"), "utf8") + more);
  await run(place, ["templates", "push", name, "-d", dir, "-y"]);
}

it("folds the logs after a good start", async () => {
  await push("slow", script("Prepare", "echo preparing; until [ -e $HOME/go ]; do sleep 0.1; done; echo prepared"));
  await run(place, ["create", "slow", "-t", "slow", "-y", "--no-wait"]);
  const { page } = await open(place, token, { width: 390 });
  await page.goto("/@ada/slow");
  const prepares = page.getByRole("log").getByText("preparing", { exact: true });
  await prepares.waitFor({ timeout: 60_000 });
  await run(place, ["stop", "slow", "-y"]);
  // Both logs are open while the scripts run.
  await page.getByRole("button", { name: "Start slow" }).click();
  await page.getByRole("button", { name: "Hide log" }).waitFor();
  await page.getByText("Apply complete!").first().waitFor({ timeout: 60_000 });
  await prepares.waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "Hide log" }).waitFor();
  await page.getByRole("tab", { name: "Logs", selected: true }).waitFor();
  await run(place, ["ssh", "slow", "--wait=no", "--", "touch $HOME/go"]);

  await page.getByRole("button", { name: "Show log" }).waitFor();
  await page.getByText(/^took \d/).waitFor();
  await page.getByText(/^Startup scripts took \d/).waitFor();
  await page.getByRole("tab", { name: "Connect", selected: true }).waitFor();
  expect(await page.getByRole("log").count()).toBe(0);
  await axe(page, "a workspace after a good start");
  await fits(page, "a workspace after a good start");
  // Each opens again, and so does the page of the build.
  await page.getByRole("button", { name: "Show startup log" }).click();
  await page.getByRole("log").getByText("prepared", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Hide startup log" }).click();
  await page.getByRole("button", { name: "Show log" }).click();
  await page.getByText("Apply complete!").first().waitFor();
  await page.getByRole("link", { name: "Line 2", exact: true }).click();
  await page.reload();
  await page.getByRole("button", { name: "Hide log" }).click(); // the address names a line
  expect(await page.getByRole("log").count()).toBe(0);
});

it("says which script failed, as the command line does", async () => {
  await push("broken", script("Install", "echo no such package; exit 3") + script("Clone", "echo cloned"));
  await run(place, ["create", "broken", "-t", "broken", "-y"]).catch(String);
  const { page } = await open(place, token, { dark: true });
  await page.goto("/@ada/broken");
  const why = 'startup script failed: "Install" exited with code 3';
  await page.getByText(`A ${why}.`).waitFor({ timeout: 60_000 });
  await page.getByText("Read the startup log, correct the script").waitFor();
  await page.getByRole("log").getByText("no such package", { exact: true }).waitFor();
  await axe(page, "a failed start");
  expect(await run(place, ["show", "broken"])).toContain(`main: a ${why}. Read the startup log`);
  await page.goto("/workspaces?q=name:broken");
  await page.getByText(`a ${why}`).waitFor();
});

it("says why an agent does not connect, as the command line does", async () => {
  const dir = join(place.dir, "silent");
  mkdirSync(dir, { recursive: true });
  writeFileSync(
    join(dir, "main.tf"),
    `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
resource "coder_agent" "main" {
  os                 = "linux"
  arch               = "amd64"
  connection_timeout = 1
}
resource "terraform_data" "x" {
  input = coder_agent.main.id
}
`,
  );
  await run(place, ["templates", "push", "silent", "-d", dir, "-y"]);
  const failed = await run(place, ["create", "silent", "-t", "silent", "-y", "--wait"]).catch(
    (err: Error) => err.message,
  );
  const why = "agent has not connected within 1 s, and its start script has reported nothing";
  const remedy = "Check that the image has curl, wget or busybox";
  expect(failed).toContain(`${why}. ${remedy}`);
  const { page } = await open(place, token, { width: 390 });
  await page.goto("/@ada/silent");
  await page.getByText(`A${why.slice(1)}.`).waitFor();
  await page.getByText(remedy).waitFor();
  await fits(page, "an agent that does not connect");
  await page.getByRole("link", { name: "Troubleshooting" }).click();
  await page.getByRole("heading", { name: "Cannot connect" }).waitFor();
  expect(await run(place, ["show", "silent"])).toContain(`main: ${why}. ${remedy}`);
});
