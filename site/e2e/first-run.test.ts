// From an empty server to a running workspace, as its first user goes.
import { afterAll, beforeAll, expect, it } from "vitest";
import { axe, open, picture, withBrowser } from "./browser";
import { run, Server } from "./server";
import { password } from "./setup";

withBrowser();
let server: Server;
beforeAll(async () => {
  server = await Server.make();
  await server.start();
});
afterAll(() => server.cleanup());

it("guides the first user to the first template and workspace", async () => {
  const { page } = await open(server.place);
  await page.goto("/workspaces");
  await page.waitForURL("**/setup");
  await axe(page, "setup");
  await page.getByLabel("Setup code").fill("wrong");
  await page.getByLabel("Email").fill("ada@example.com");
  await page.getByLabel("Username").fill("ada");
  await page.getByLabel("Full name").fill("Ada Lovelace");
  await page.getByLabel("Password").fill("short");
  await page.getByRole("button", { name: "Create first user" }).click();
  await page.getByText("requires the server's setup code").waitFor();
  const code = /requires this setup code: (\S+)/.exec(server.log())?.[1];
  await page.getByLabel("Setup code").fill(code ?? "the server printed none");
  await page.getByRole("button", { name: "Create first user" }).click();
  await page.getByRole("alert").first().waitFor();
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Create first user" }).click();

  // The first steps are ticked as they are done.
  const steps = page.getByRole("list", { name: "Get started" });
  const undone = steps.getByRole("img", { name: "To do" });
  await page.getByText("0 of 4 done").waitFor();
  expect(await undone.count()).toBe(4);
  await steps.getByText("It needs a template.").waitFor();
  await axe(page, "the empty list");
  await picture(page, "empty");
  await page.getByRole("link", { name: "Create the first template" }).click();
  await page.getByRole("radio", { name: /Processes on the provisioner/ }).check();
  await axe(page, "new template");
  await page.getByRole("button", { name: "Import" }).click();
  await page.getByText("Import succeeded").waitFor({ timeout: 60_000 });
  expect(await page.getByRole("log").innerText()).toContain("Plan:");
  // The address names the import: a reload resumes it.
  await page.reload();
  await page.getByRole("button", { name: "Create template" }).click();
  await page.getByRole("heading", { name: "Processes on the provisioner's host", level: 1 }).waitFor();
  await picture(page, "template");

  await page.getByRole("link", { name: "Create workspace" }).click();
  await page.getByRole("button", { name: "Create workspace" }).isDisabled();
  await page.getByLabel("Name", { exact: true }).fill("dev");
  await page.getByRole("radio", { name: "sh", exact: true }).check();
  await axe(page, "create");
  await page.getByRole("button", { name: "Create workspace" }).click();
  await page.waitForURL("**/@ada/dev");
  await page.getByText("Build #1: start").waitFor();
  await page.getByRole("button", { name: "Show log" }).click();
  await page.locator('[data-log="ended"]').waitFor({ timeout: 60_000 });
  expect(await page.getByRole("log").first().innerText()).toContain("Apply complete!");
  await page.getByText("connected", { exact: true }).waitFor();
  await page.getByText("/bin/sh").waitFor();
  await axe(page, "a workspace");
  await picture(page, "workspace-build");

  // Two steps are left. They are done with the first connection from outside of the browser.
  await page.getByRole("link", { name: "Workspaces", exact: true }).click();
  await page.getByText("2 of 4 done").waitFor();
  expect(await steps.getByRole("textbox", { name: "install command" }).inputValue()).toBe(
    `curl -fsSL ${server.place.url}/install.sh | sh`,
  );
  await axe(page, "the first steps");
  await run(server.place, ["login", server.place.url, "--email", "ada@example.com", "--password", password]);
  await run(server.place, ["ssh", "dev", "--", "true"]);
  await steps.waitFor({ state: "detached", timeout: 60_000 });
  await page.getByRole("link", { name: "dev", exact: true }).waitFor();

  // Setting up works once.
  await page.goto("/setup");
  await page.waitForURL("**/login");
});
