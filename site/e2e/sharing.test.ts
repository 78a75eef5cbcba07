// Access to templates, workspaces and ports, and quotas: owners give and withdraw access, guests see what they may do.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import type { Group, Organization, PortShares, Template, Workspace, WorkspaceACL } from "../src/api/types";
import { axe, fits, open, picture, withBrowser } from "./browser";
import { api, freePort, run } from "./server";
import { password } from "./setup";

withBrowser();
const place = inject("place");
const token = inject("token");
let organization: Organization;
let port: number;
let bob: string;
let cyd: string;

async function member(username: string): Promise<string> {
  const email = `${username}@example.com`;
  await api(place, token, "POST", "users", { username, email, password, name: `${username} Guest` });
  const login = await fetch(`${place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email, password }),
  });
  return ((await login.json()) as { session_token: string }).session_token;
}

// push makes a template from the starter's source.
async function push(name: string, change: (source: string) => string) {
  const dir = join(place.dir, name);
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "main.tf"), change(readFileSync(join(place.dir, "process", "main.tf"), "utf8")));
  await run(place, ["templates", "push", name, "-d", dir, "-y"]);
}

const allowance = (credits: number) =>
  api<Group>(place, token, "PATCH", `groups/${organization.id}`, { quota_allowance: credits });

beforeAll(async () => {
  organization = await api<Organization>(place, token, "GET", "organizations/default");
  port = await freePort();
  const program = `require("node:http").createServer((_, a) => a.end("through the port")).listen(${port}, "127.0.0.1")`;
  await push(
    "open",
    (source) => `${source}
resource "coder_script" "serve" {
  agent_id     = coder_agent.main.id
  display_name = "Serve"
  run_on_start = true
  script       = "nohup ${process.execPath} -e '${program.replaceAll('"', '\\"')}' >/dev/null 2>&1 &"
}
`,
  );
  await push("costly", (source) => source.replace('resource "coder_metadata" "process" {', "$&\n  daily_cost = 30"));
  bob = await member("gus");
  cyd = await member("cyd");
  await run(place, ["groups", "create", "friends", "--display-name", "Ada's friends"]);
  await run(place, ["groups", "edit", "friends", "--add-users", "cyd"]);
  await run(place, ["create", "together", "-t", "open", "-y"]);
});

afterAll(() => allowance(0));

// share chooses a user or group in the dialog.
async function share(page: Page, name: string, role: string) {
  await page.getByRole("button", { name: "Share…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Search users and groups").fill(name);
  await dialog.getByRole("radio", { name: new RegExp(name) }).check();
  await dialog.getByLabel("Role", { exact: true }).selectOption(role);
  await axe(page, "share");
  await dialog.getByRole("button", { name: "Share", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
}

async function unshare(page: Page, name: string) {
  await page.getByRole("button", { name: `Stop sharing with ${name}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop sharing" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
}

it("shares a workspace with a user and a group, and ends it at once", async () => {
  const { page } = await open(place, token);
  await page.goto("/@ada/together");
  await page.getByRole("navigation", { name: "Workspace" }).getByRole("link", { name: "Sharing" }).click();
  await page.getByText("Not shared").waitFor();
  await share(page, "gus", "use");
  await share(page, "Ada's friends", "admin");
  await page.getByLabel("Role of Ada's friends").waitFor();
  await axe(page, "sharing of a workspace");
  await picture(page, "workspace-sharing");
  const { id } = await api<Workspace>(place, token, "GET", "users/me/workspace/together");
  const acl = await api<WorkspaceACL>(place, token, "GET", `workspaces/${id}/acl`);
  expect(acl.users.map((u) => [u.username, u.role])).toEqual([["gus", "use"]]);
  expect(acl.group.map((g) => [g.name, g.role])).toEqual([["friends", "admin"]]);

  // A guest who may use it finds it, and sees no button that the server would refuse.
  const guest = await open(place, bob);
  await guest.page.goto("/workspaces");
  await guest.page.getByText("You have no workspaces").waitFor();
  await guest.page.getByRole("button", { name: "Shared with me" }).click();
  await guest.page.getByRole("link", { name: "together", exact: true }).click();
  await guest.page.getByText("ada shares this workspace with you").waitFor();
  await guest.page.getByRole("link", { name: "Terminal" }).waitFor();
  expect(await guest.page.getByRole("button", { name: /^(Stop|Start) together/ }).count()).toBe(0);
  expect(await guest.page.getByRole("link", { name: /^(Settings|Sharing)$/ }).count()).toBe(0);
  await guest.page.getByRole("button", { name: "More for together" }).click();
  await guest.page.getByRole("menu").waitFor();
  expect(await guest.page.getByRole("menuitem").allInnerTexts()).toEqual(["Add to favorites"]);
  await guest.page.keyboard.press("Escape");
  await axe(guest.page, "a guest's workspace");
  await picture(guest.page, "guest");
  const terminal = await guest.context.newPage();
  await terminal.goto("/@ada/together.main/terminal");
  await terminal.locator('[data-terminal="open"]').waitFor();

  // A guest who is an admin by the group starts, stops and shares, and does not delete.
  const friend = await open(place, cyd);
  await friend.page.goto("/@ada/together");
  await friend.page.getByRole("button", { name: "Stop together" }).waitFor();
  await friend.page.getByRole("link", { name: "Sharing" }).waitFor();
  await friend.page.getByRole("button", { name: "More for together" }).click();
  await friend.page.getByRole("menuitem", { name: "Restart" }).waitFor();
  expect(await friend.page.getByRole("menuitem", { name: /Delete/ }).count()).toBe(0);
  await friend.page.keyboard.press("Escape");

  // Withdrawn: both pages of the guest say so without a reload. The friend and the owner go on.
  await unshare(page, "gus");
  await guest.page.getByText("together is no longer available").waitFor();
  await terminal.getByText("together is no longer available").waitFor();
  await page.getByLabel("Role of Ada's friends").selectOption("use");
  await friend.page.getByRole("button", { name: "Stop together" }).waitFor({ state: "detached" });
  await run(place, ["groups", "edit", "friends", "--rm-users", "cyd"]);
  await friend.page.getByText("together is no longer available").waitFor();
  await page.goto("/workspaces");
  await page.getByRole("button", { name: "Shared by me" }).click();
  await page.getByRole("link", { name: "together", exact: true }).waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  await fits(page, "a narrow list");
  await axe(page, "a narrow list");
  await page.goto("/@ada/together?tab=sharing");
  await page.getByLabel("Role of Ada's friends").waitFor();
  await fits(page, "a narrow page");
  await picture(page, "workspace-sharing-phone");
});

it("makes a template private, and shares it again", async () => {
  const { page } = await open(place, token, { dark: true });
  await page.goto("/templates/open/permissions");
  const hide = page.getByLabel(/Hide this template/);
  await expect.poll(() => hide.isChecked()).toBe(false);
  const guest = await open(place, bob);
  await guest.page.goto("/templates/open");
  await guest.page.getByRole("link", { name: "Create workspace" }).waitFor();
  expect(await guest.page.getByRole("link", { name: "Permissions" }).count()).toBe(0);
  await hide.check();
  await guest.page.getByText("Template not found").waitFor();
  await page.getByText("Not shared", { exact: true }).waitFor();
  await share(page, "gus", "admin");
  await guest.page.goto("/templates/open");
  // The guest administers it now, without a role of the deployment.
  await guest.page.getByRole("link", { name: "Permissions" }).waitFor();
  await guest.page.getByRole("link", { name: "New version" }).waitFor();
  await page.getByLabel("Role of gus").waitFor();
  await axe(page, "permissions of a template");
  await picture(page, "template-permissions");
  await hide.uncheck();
  await page.getByLabel("Role of Everyone").waitFor();
  await unshare(page, "gus");
  await guest.page.getByRole("link", { name: "Permissions" }).waitFor({ state: "detached" });
  await page.setViewportSize({ width: 390, height: 844 });
  await fits(page, "a narrow page");
  await picture(page, "template-permissions-phone");
});

it("shares a port up to the template's ceiling", async () => {
  const { page } = await open(place, token);
  await page.goto("/@ada/together");
  await page.getByRole("tab", { name: "Ports" }).click();
  const who = page.getByLabel(`Who may open port ${port}`);
  await who.waitFor();
  const link = (await page.getByRole("link", { name: `Open port ${port}` }).getAttribute("href"))!;
  const visitor = await open(place);
  await visitor.page.goto(link);
  expect(await visitor.page.getByText("through the port").count()).toBe(0);
  // The name of the program is there; ports of the host, such as the server's, are not the workspace's.
  await page
    .getByRole("listitem")
    .filter({ hasText: `${port}` })
    .getByText(/^(node|MainThread)$/)
    .waitFor();
  expect(await page.getByLabel(`Who may open port ${place.port}`).count()).toBe(0);
  // A new template lets owners share nothing further.
  await page.getByText("The template does not allow ports to be shared further.").waitFor();
  const settings = await open(place, token);
  const limit = async (level: string) => {
    await settings.page.goto("/templates/open/settings");
    await settings.page.getByLabel("Share ports and apps with at most").selectOption(level);
    await settings.page.getByRole("button", { name: "Save" }).click();
  };
  await limit("public");
  await who.selectOption("public");
  const { id, template_id } = await api<Workspace>(place, token, "GET", "users/me/workspace/together");
  const shares = async () => (await api<PortShares>(place, token, "GET", `workspaces/${id}/port-share`)).shares;
  await expect.poll(shares).toMatchObject([{ port, share_level: "public", protocol: "http" }]);
  await axe(page, "shared ports");
  await picture(page, "ports");
  await expect
    .poll(async () => {
      await visitor.page.goto(link);
      return visitor.page.locator("body").innerText();
    })
    .toBe("through the port");

  await limit("organization");
  await expect
    .poll(async () => (await api<Template>(place, token, "GET", `templates/${template_id}`)).max_port_share_level)
    .toBe("organization");
  await page.getByText("The template allows ports to be shared with at most: members of the organization.").waitFor();
  await expect.poll(() => who.inputValue()).toBe("owner");
  expect(await who.getByRole("option", { disabled: true }).allInnerTexts()).toEqual([
    "All signed-in users",
    "Anyone with the link, without signing in",
  ]);
  expect(await shares()).toEqual([]);
  await expect
    .poll(async () => {
      await visitor.page.goto(link);
      return visitor.page.getByText("through the port").count();
    })
    .toBe(0);
  await page.setViewportSize({ width: 390, height: 844 });
  await fits(page, "ports on a narrow page");
  await picture(page, "ports-phone");
});

it("shows the quota, and why a build exceeds it", async () => {
  await allowance(10);
  const { page } = await open(place, token);
  await page.goto("/templates/costly/workspace?name=much");
  await page.getByText("You use 0 of 10 credits a day").waitFor();
  await page.getByText("This template costs 30 credits a day").waitFor();
  await page.getByText("A workspace that exceeds the quota does not start.").waitFor();
  await axe(page, "a template's cost");
  await picture(page, "quota-create");
  await page.getByRole("button", { name: "Create workspace" }).click();
  await page.getByText("This build needs 30 credits a day; ada uses 0 of 10.").first().waitFor();
  await picture(page, "quota");
  await page.goto("/account");
  await page.getByRole("heading", { name: "Quota" }).waitFor();
  await page.getByText("of 10 credits a day").waitFor();
  await allowance(100);
  await page.goto("/@ada/much");
  await page.getByRole("button", { name: "Start much" }).click();
  await page.getByText("costs 30 credits a day (ada uses 30 of 100 credits a day)").waitFor();
});

it("lets an administrator withdraw what others share, and transfer a workspace to another user", async () => {
  const { id: template } = await api<Template>(place, token, "GET", "organizations/default/templates/open");
  const theirs = await api<Workspace>(place, bob, "POST", "users/me/workspaces", {
    name: "theirs",
    template_id: template,
  });
  const latest = async () => (await api<Workspace>(place, token, "GET", `workspaces/${theirs.id}`)).latest_build.status;
  await expect.poll(latest, { timeout: 60_000 }).toBe("running");
  const members = await api<{ user_id: string; username: string }[]>(
    place,
    token,
    "GET",
    "organizations/default/members",
  );
  const guest = members.find((m) => m.username === "cyd")!.user_id;
  await api(place, bob, "PATCH", `workspaces/${theirs.id}/acl`, { user_roles: { [guest]: "use" } });

  const { page } = await open(place, token);
  await page.goto("/@gus/theirs?tab=sharing");
  await page.getByText("You can withdraw sharing, not extend it").waitFor();
  await page.getByLabel("Role of cyd").waitFor();
  expect(await page.getByRole("button", { name: "Share…" }).count()).toBe(0);
  expect(await page.getByLabel("Role of cyd").getByRole("option", { disabled: true }).allInnerTexts()).toEqual([
    "Admin",
  ]);
  await axe(page, "sharing that can only be withdrawn");
  await unshare(page, "cyd");
  await page.getByText("Not shared").waitFor();

  const owner = await open(place, bob);
  await owner.page.goto("/@gus/theirs");
  await owner.page.getByRole("button", { name: "More for theirs" }).click();
  await owner.page.getByRole("menuitem", { name: /Delete/ }).waitFor();
  expect(await owner.page.getByRole("menuitem", { name: /Transfer/ }).count()).toBe(0);
  await owner.page.keyboard.press("Escape");

  await page.getByRole("button", { name: "More for theirs" }).click();
  await page.getByRole("menuitem", { name: "Transfer…" }).click();
  const dialog = page.getByRole("dialog", { name: "Transfer theirs" });
  await dialog.getByLabel("Search members").fill("cyd");
  await dialog.getByRole("radio", { name: /cyd/ }).check();
  await axe(page, "transfer");
  await picture(page, "transfer");
  await dialog.getByRole("button", { name: "Transfer", exact: true }).click();
  await page.getByText("theirs now belongs to cyd").waitFor({ timeout: 60_000 });
  await owner.page.getByText("theirs is no longer available").waitFor();
  await page.getByRole("link", { name: "Open theirs" }).click();
  await page.getByRole("heading", { level: 1 }).getByText("Stopped").waitFor();
  const friend = await open(place, cyd);
  await friend.page.goto("/@cyd/theirs");
  await friend.page.getByRole("button", { name: "Start theirs" }).waitFor();
});
