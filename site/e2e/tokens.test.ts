import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { beforeAll, expect, inject, it } from "vitest";
import type {
  ConnectionLog,
  CreateTokenResponse,
  SSHGateway,
  UserSecret,
  UserSSHKey,
  Workspace,
} from "../src/api/types";
import { axe, fits, open, withBrowser } from "./browser";
import { api, run, until } from "./server";
import { password } from "./setup";

withBrowser();
const place = inject("place");
const token = inject("token");

// signIn gives a session by password, or the refusal's status.
async function signIn(email: string, secret: string): Promise<string | number> {
  const answer = await fetch(`${place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email, password: secret }),
  });
  return answer.ok ? ((await answer.json()) as { session_token: string }).session_token : answer.status;
}

async function member(name: string): Promise<string> {
  await api(place, token, "POST", "users", { username: name, email: `${name}@example.com`, password, name: "" });
  return (await signIn(`${name}@example.com`, password)) as string;
}

// look stores a picture of a page in the folder that LOOK names, for reviews of its looks.
async function look(page: Page, name: string) {
  const dir = process.env["LOOK"];
  if (!dir) return;
  mkdirSync(dir, { recursive: true });
  await page.screenshot({ path: join(dir, `${name}.png`), fullPage: true });
}

let gina: string;
beforeAll(async () => {
  gina = await member("gina");
});

const section = (page: Page, title: string) =>
  page.locator("section", { has: page.getByRole("heading", { name: title, exact: true }) });

it("creates a limited token, shows it once, expires and deletes it", async () => {
  const { page } = await open(place, gina);
  await page.goto("/account");
  await page.getByText("No tokens").waitFor();
  await page.getByRole("button", { name: "New token" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name", { exact: true }).fill("watcher");
  await dialog.getByLabel("Scopes").fill("workspace:fly");
  await dialog.getByRole("button", { name: "Create token" }).click();
  await dialog.getByText('"workspace:fly" does not exist', { exact: false }).waitFor();
  await dialog.getByLabel("Scopes").fill("workspace:read template:read");
  await dialog.getByLabel("Lifetime").selectOption("7 days");
  await look(page, "new-token");
  await dialog.getByRole("button", { name: "Create token" }).click();
  await dialog.getByText("within its scopes", { exact: false }).waitFor();
  const key = await dialog.getByRole("textbox", { name: "token" }).inputValue();
  await axe(page, "a new token");
  await look(page, "token-shown-once");
  await dialog.getByRole("button", { name: "Done" }).click();

  // It does what its scopes name, and is not shown again.
  await api(place, key, "GET", "workspaces");
  await expect(api(place, key, "POST", "users/me/keys/tokens", { token_name: "more" })).rejects.toThrow("403");
  await page.reload();
  const row = page.getByRole("row").filter({ hasText: "watcher" });
  await row.getByText("workspace:read").waitFor();
  expect(await page.content()).not.toContain(key);

  await row.getByRole("button", { name: "Expire token watcher" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Expire" }).click();
  await page.getByText("No tokens").waitFor();
  await expect(api(place, key, "GET", "users/me")).rejects.toThrow("401");
  await page.getByLabel("Show expired").check();
  await row.getByText("Expired").waitFor();
  expect(await row.getByRole("button", { name: "Expire token watcher" }).count()).toBe(0);
  await axe(page, "expired tokens");
  await row.getByRole("button", { name: "Delete token watcher" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await row.waitFor({ state: "detached" });
});

it("keeps secrets: adds, changes, disables and deletes them, and never shows a value", async () => {
  const { page } = await open(place, gina);
  const value = "-----BEGIN KEY-----\nhunter2-first\n-----END KEY-----\n";
  await page.goto("/account");
  await page.getByText("No secrets").waitFor();
  await page.getByRole("button", { name: "New secret" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("deploy");
  await dialog.getByLabel("Value").fill(value);
  await dialog.getByLabel("Environment variable").fill("PATH");
  await dialog.getByRole("button", { name: "Create secret" }).click();
  await dialog.getByText("Cannot be PATH", { exact: false }).first().waitFor();
  expect(await dialog.getByLabel("Value").inputValue()).toBe(value); // a refusal loses nothing
  await dialog.getByLabel("Environment variable").fill("DEPLOY_KEY");
  await dialog.getByLabel("Description").fill("Signs releases");
  await axe(page, "a new secret");
  await look(page, "new-secret");
  await dialog.getByRole("button", { name: "Create secret" }).click();
  const row = page.getByRole("row").filter({ hasText: "deploy" });
  await row.getByText("DEPLOY_KEY").waitFor();
  await row.getByText("Signs releases").waitFor();

  // Changed without its value, which stays; then with a new one.
  const read = async () => (await api<UserSecret[]>(place, gina, "GET", "users/me/secrets"))[0];
  await row.getByRole("button", { name: "Edit secret deploy" }).click();
  expect(await dialog.getByLabel("Value").inputValue()).toBe("");
  await dialog.getByLabel("File").fill("~/.deploy-key");
  await look(page, "edit-secret");
  await dialog.getByRole("button", { name: "Save secret" }).click();
  await row.getByText("~/.deploy-key").waitFor();
  expect(await read()).toMatchObject({ env_name: "DEPLOY_KEY", file_path: "~/.deploy-key", enabled: true });
  await row.getByRole("button", { name: "Edit secret deploy" }).click();
  await dialog.getByLabel("Value").fill("hunter2-second");
  await dialog.getByLabel("Enabled").uncheck();
  await dialog.getByRole("button", { name: "Save secret" }).click();
  await row.getByText("Disabled").waitFor();
  await axe(page, "secrets");
  await page.reload();
  await row.waitFor();
  expect(await page.content()).not.toContain("hunter2");
  expect(JSON.stringify(await read())).not.toContain("hunter2");

  // Another user has none of it.
  const otto = await member("otto");
  await expect(api(place, otto, "GET", "users/gina/secrets")).rejects.toThrow(/40[34]/);
  await expect(api(place, token, "GET", "users/gina/secrets")).rejects.toThrow(/40[34]/);

  await row.getByRole("button", { name: "Delete secret deploy" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No secrets").waitFor();
});

it("adds and removes SSH keys, and refuses private ones and those of others", async () => {
  const dir = mkdtempSync(join(tmpdir(), "ssh-keys-"));
  const generate = (name: string, ...more: string[]) => {
    execFileSync("ssh-keygen", ["-q", "-N", "", "-C", `gina@${name}`, "-f", join(dir, name), ...more]);
    return readFileSync(join(dir, `${name}.pub`), "utf8");
  };
  const line = generate("laptop", "-t", "ed25519");
  const { page } = await open(place, gina);
  const sent: string[] = [];
  page.on("request", (request) => sent.push(request.postData() ?? ""));
  await page.goto("/account");
  const keys = section(page, "SSH keys for sign-in");
  await keys.getByText("No SSH keys").waitFor();
  const gateway = await api<SSHGateway>(place, gina, "GET", "deployment/ssh-gateway");
  expect(await keys.getByLabel("SSH command", { exact: true }).inputValue()).toBe(
    `ssh -p ${gateway.address.split(":").at(-1)} WORKSPACE@127.0.0.1`,
  );
  await keys.getByText(gateway.fingerprint).waitFor();
  await keys.getByRole("button", { name: "Add SSH key" }).click();
  const dialog = page.getByRole("dialog");
  const field = dialog.getByLabel("Public key");
  const submit = dialog.getByRole("button", { name: "Add key" });
  await field.fill(readFileSync(join(dir, "laptop"), "utf8"));
  await submit.click();
  await dialog.getByText("This is a private key. It was not sent.").waitFor();
  expect(sent.join("")).not.toContain("PRIVATE KEY");
  await axe(page, "a refused private key");
  await field.fill(generate("short", "-t", "rsa", "-b", "1024"));
  await submit.click();
  await dialog.getByText("RSA keys of 1024 bits are too weak", { exact: false }).waitFor();
  await field.fill(line);
  await dialog.getByLabel("Lifetime").selectOption("90 days");
  await look(page, "add-ssh-key");
  await submit.click();
  const row = keys.getByRole("row").filter({ hasText: "gina@laptop" });
  await row.getByText(/^SHA256:/).waitFor();
  await row.getByText("ssh-ed25519").waitFor();
  await row.getByText("Never", { exact: true }).waitFor(); // used
  const [stored] = await api<UserSSHKey[]>(place, gina, "GET", "users/me/ssh-keys");
  expect(stored).toMatchObject({ name: "gina@laptop", public_key: line.split(" ").slice(0, 2).join(" ") });
  await axe(page, "SSH keys");

  // Another user cannot have it, and does not learn whose it is; no role adds one for her.
  const rita = await member("rita");
  const taken = api(place, rita, "POST", "users/me/ssh-keys", { public_key: line });
  await expect(taken).rejects.toThrow(/409/);
  expect(String(await taken.catch(String))).not.toContain("gina");
  const planted = { public_key: generate("planted", "-t", "ed25519") };
  await expect(api(place, token, "POST", "users/gina/ssh-keys", planted)).rejects.toThrow("403");

  await row.getByRole("button", { name: "Remove SSH key gina@laptop" }).click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await keys.getByText("No SSH keys").waitFor();
  expect(await api<UserSSHKey[]>(place, gina, "GET", "users/me/ssh-keys")).toEqual([]);
});

it("withholds credentials of owners who started nothing, and lets them revoke", async () => {
  const pia = await member("pia");
  await run(place, ["create", "pia/gift", "-t", "process", "-y"]);
  const { page } = await open(place, pia);
  await page.goto("/@pia/gift");
  await page.getByText("No credentials of pia").waitFor();
  await axe(page, "a workspace without credentials");
  await page.goto("/account");
  const consents = section(page, "Templates with your credentials");
  await consents.getByText("No templates").waitFor();

  const gift = await api<Workspace>(place, pia, "GET", "users/pia/workspace/gift");
  await api(place, pia, "POST", `workspaces/${gift.id}/restart`, {});
  await page.reload();
  await consents.getByRole("button", { name: "Revoke consent to" }).click();
  await look(page, "consents");
  await axe(page, "revoking a consent");
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await consents.getByText("No templates").waitFor();
  expect(await api<unknown[]>(place, pia, "GET", "users/me/template-consents")).toEqual([]);
});

it("lists who reached which workspace", async () => {
  await run(place, ["create", "seen", "-t", "process", "-y"]);
  await run(place, ["ssh", "seen", "--", "true"]);
  await until("the session is in the connection log", async () => {
    const log = await api<{ connection_logs: ConnectionLog[] }>(place, token, "GET", "connectionlog?q=type:ssh");
    return log.connection_logs.some((c) => c.workspace_name === "seen" && c.disconnect_time);
  });
  const { page } = await open(place, token);
  await page.goto("/connectionlog");
  const row = page.getByRole("row").filter({ hasText: "ada/seen" }).first();
  await row.getByText("SSH").waitFor();
  await page.getByLabel("Search the connection log").fill("type:ssh workspace_owner:ada");
  await page.getByRole("button", { name: "Search" }).click();
  await row.waitFor();
  await page.getByLabel("Search the connection log").fill("type:jetbrains");
  await page.getByRole("button", { name: "Search" }).click();
  await page.getByText("No connections found").waitFor();
  await page.getByLabel("Search the connection log").fill("color:red");
  await page.getByRole("button", { name: "Search" }).click();
  await page.getByText("does not support color").waitFor();
  // Members do not see it.
  await expect(api(place, gina, "GET", "connectionlog")).rejects.toThrow(/40[34]/);
});

it("lets an administrator set a member's password, which ends the member's sessions", async () => {
  const nora = await member("nora");
  const theirs = await open(place, nora);
  await theirs.page.goto("/workspaces");
  await theirs.page.getByText("You have no workspaces").waitFor();
  const { page } = await open(place, token);
  await page.goto("/users");
  await page.getByRole("button", { name: "More for nora" }).click();
  await page.getByRole("menuitem", { name: "Set password…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("New password").fill("short");
  await dialog.getByRole("button", { name: "Set password" }).click();
  await dialog
    .getByRole("alert")
    .or(dialog.getByText("must", { exact: false }))
    .first()
    .waitFor();
  await dialog.getByLabel("New password").fill(`${password}?`);
  await axe(page, "set a password");
  await dialog.getByRole("button", { name: "Set password" }).click();
  await dialog.waitFor({ state: "detached" });
  await theirs.page.goto("/templates");
  await theirs.page.waitForURL("**/login?redirect=%2Ftemplates");
  expect(await signIn("nora@example.com", password)).toBe(401);
  expect(await signIn("nora@example.com", `${password}?`)).toEqual(expect.any(String));
});

it("fits every window", async () => {
  const { key } = await api<CreateTokenResponse>(place, token, "POST", "users/me/keys/tokens", {
    token_name: "a-rather-long-name-of-a-token-for-continuous-integration",
    scopes: ["workspace:read", "workspace:start", "workspace:stop", "template:read"],
  });
  expect(key).toMatch(/-/);
  await api(place, token, "POST", "users/me/secrets", {
    name: "registry",
    value: "x",
    description: "Reads packages",
    env_name: "REGISTRY_TOKEN",
    file_path: "~/.config/registry/credentials",
  });
  const dir = mkdtempSync(join(tmpdir(), "ssh-key-"));
  execFileSync("ssh-keygen", ["-q", "-t", "ecdsa", "-N", "", "-C", "ada@workstation", "-f", join(dir, "id")]);
  await api(place, token, "POST", "users/me/ssh-keys", { public_key: readFileSync(join(dir, "id.pub"), "utf8") });
  for (const [name, how] of Object.entries({ light: {}, dark: { dark: true }, phone: { width: 390 } })) {
    const { page } = await open(place, token, how);
    for (const path of ["/account", "/audit", "/connectionlog", "/templates/process/settings"]) {
      await page.goto(path);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page
        .getByText(/^Loading/)
        .first()
        .waitFor({ state: "detached" });
      if (path === "/account") {
        await section(page, "Tokens").getByText("a-rather-long-name", { exact: false }).waitFor();
        await section(page, "Secrets").getByText("REGISTRY_TOKEN").waitFor();
        await section(page, "SSH keys for sign-in").getByText("ada@workstation").waitFor();
      }
      await axe(page, `${path} ${name}`);
      await fits(page, `${path} ${name}`);
      await look(page, `${path.replaceAll("/", "-").slice(1)}-${name}`);
    }
  }
});
