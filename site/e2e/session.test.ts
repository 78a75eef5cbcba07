import { createHash, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, inject, it } from "vitest";
import { admin, axe, open, withBrowser } from "./browser";
import { api } from "./server";
import { password } from "./setup";

withBrowser();
const place = inject("place");
const token = inject("token");

async function signIn(page: import("playwright-core").Page, word = password) {
  await page.getByLabel("Email").fill("ada@example.com");
  await page.getByLabel("Password").fill(word);
  await page.getByRole("button", { name: "Sign in" }).click();
}

it("signs in and out", async () => {
  const { page, context } = await open(place);
  await page.goto("/");
  await page.waitForURL("**/login");
  await axe(page, "sign-in");
  await signIn(page, "wrong");
  await page.getByText("The email address or the password is wrong.").waitFor();
  await signIn(page);
  await page.waitForURL("**/workspaces");
  const cookie = (await context.cookies()).find((c) => c.name === "coder_session_token");
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Lax" });
  expect(await page.evaluate(() => document.cookie)).not.toContain("coder_session_token");

  await page.getByRole("button", { name: "Account of ada" }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.waitForURL("**/login");
  const ended = await fetch(`${place.url}/api/v2/users/me`, { headers: { "Coder-Session-Token": cookie!.value } });
  expect(ended.status).toBe(401);
});

it("returns to the page where a session ended", async () => {
  const { page, context } = await open(place);
  await page.route("**/api/v2/events", () => {}); // no events, so no news of the logout
  await page.goto("/login");
  await signIn(page);
  await page.waitForURL("**/workspaces");
  const session = (await context.cookies()).find((c) => c.name === "coder_session_token")!.value;
  await page.goto("/templates/process/files?x=1#here");
  await page.getByText("main.tf").waitFor();
  // The session ends elsewhere, in the moment in which the page asks for the users.
  await page.route("**/api/v2/users?q=*", async (route) => {
    await page.unroute("**/api/v2/users?q=*");
    await api(place, session, "POST", "users/logout");
    await route.continue();
  });
  await (await admin(page)).getByRole("menuitem", { name: "Users" }).click();
  await page.waitForURL("**/login?redirect=%2Fusers");
  await page.getByText("Sign in to return to the page you opened.").waitFor();
  await signIn(page);
  await page.waitForURL("**/users");
  await page.getByRole("table").waitFor();
});

it("notices that the session has ended, and returns after signing in", async () => {
  const { page, context } = await open(place);
  await page.goto("/login");
  await signIn(page);
  await page.waitForURL("**/workspaces");
  const session = (await context.cookies()).find((c) => c.name === "coder_session_token")!.value;
  await page.goto("/templates/process/files");
  await page.getByText("main.tf").waitFor();
  await api(place, session, "POST", "users/logout");
  await page.waitForURL("**/login?redirect=%2Ftemplates%2Fprocess%2Ffiles");
  await signIn(page);
  await page.waitForURL("**/templates/process/files");
  await page.getByText("main.tf").waitFor();
});

it("shows nothing to a suspended user", async () => {
  const user = { username: "sue", email: "sue@example.com", password };
  await api(place, token, "POST", "users", user);
  const { page } = await open(place);
  await page.goto("/login");
  await page.getByLabel("Email").fill(user.email);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("You have no workspaces").waitFor();
  await api(place, token, "PUT", "users/sue/status/suspend");
  await page.waitForURL("**/login?redirect=%2Fworkspaces");
  await page.getByLabel("Email").fill(user.email);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText(/suspended/).waitFor();
});

it("creates a token for a terminal", async () => {
  const { page } = await open(place, token);
  await page.goto("/cli-auth");
  await page.getByRole("button", { name: "Create token" }).waitFor();
  await axe(page, "cli-auth");
  await page.getByRole("button", { name: "Create token" }).click();
  const key = await page.getByLabel("session token", { exact: true }).inputValue();
  expect(key).toMatch(/^[A-Za-z0-9]{10}-[A-Za-z0-9]{22}$/);
  expect(await api(place, key, "GET", "users/me")).toMatchObject({ username: "ada" });
  await page.getByRole("button", { name: "Copy session token" }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(key);
});

it("signs in a terminal elsewhere by its code, or refuses it", async () => {
  interface Device {
    device_code: string;
    user_code: string;
  }
  const { page } = await open(place, token);
  const begin = () => api<Device>(place, "", "POST", "users/login/device", { host: "build-7 <b>x</b>" });
  const first = await begin();
  await page.goto(`/cli-auth/code?code=${first.user_code}`);
  const field = page.getByRole("textbox", { name: "Code" });
  expect(await field.inputValue()).toBe(""); // a link fills nothing in
  await axe(page, "code of a terminal");
  await field.fill("BBBB-BBBB");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("alert").getByText("No program waits").waitFor();
  await field.fill(first.user_code.toLowerCase());
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByText("build-7 <b>x</b>").waitFor();
  await page.getByText("127.0.0.1").waitFor();
  await axe(page, "terminal that asks");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("The terminal is signed in").waitFor();
  const taken = await api<{ session_token: string }>(place, "", "POST", "users/login/device/token", {
    device_code: first.device_code,
  });
  expect(await api(place, taken.session_token, "GET", "users/me")).toMatchObject({ username: "ada" });

  const second = await begin();
  await page.goto("/cli-auth/code");
  await field.fill(second.user_code);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("button", { name: "Refuse" }).click();
  await page.getByText("The terminal was refused").waitFor();
  const refused = await fetch(`${place.url}/api/v2/users/login/device/token`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ device_code: second.device_code }),
  });
  expect(refused.status).toBe(400);
  expect(await refused.json()).toMatchObject({ detail: "access_denied" });
});

it("hands its sign-in over to a terminal on this computer", async () => {
  const verifier = randomBytes(32).toString("base64url");
  const challenge = createHash("sha256").update(verifier).digest("base64url");
  // The terminal, as `coder login` listens.
  let arrived: (url: URL) => void;
  const visit = new Promise<URL>((resolve) => (arrived = resolve));
  const terminal = createServer((request, response) => {
    const url = new URL(request.url ?? "", "http://127.0.0.1");
    if (url.pathname === "/") arrived(url);
    response.writeHead(303, { Location: `${place.url}/cli-auth?done=true` }).end();
  });
  await new Promise<void>((resolve) => terminal.listen(0, "127.0.0.1", resolve));
  try {
    const { port } = terminal.address() as AddressInfo;
    const { page } = await open(place, token, { expect: new RegExp(`another host: http://127.0.0.1:${port}/`) });
    await page.goto(`/cli-auth?port=${port}&state=the-state&code_challenge=${challenge}`);
    await page.getByRole("button", { name: "Show a token" }).waitFor();
    await axe(page, "cli-auth of a terminal");
    await page.getByRole("button", { name: "Sign in" }).click();
    const url = await visit;
    expect(url.searchParams.get("state")).toBe("the-state");
    await page.getByText("The terminal is signed in").waitFor();
    const code = url.searchParams.get("code") ?? "";
    const taken = await api<{ session_token: string }>(place, "", "POST", "users/login/code", {
      code,
      code_verifier: verifier,
    });
    expect(await api(place, taken.session_token, "GET", "users/me")).toMatchObject({ username: "ada" });
    const thief = await fetch(`${place.url}/api/v2/users/login/code`, {
      method: "POST",
      body: JSON.stringify({ code, code_verifier: challenge }),
    });
    expect(thief.status).toBe(401);
  } finally {
    terminal.close();
  }
});

it("follows the chosen theme, without a flash, in every browser of the user", async () => {
  const mine = { email: "iris@example.com", password };
  await api(place, token, "POST", "users", { ...mine, username: "iris", name: "" });
  const login = await api<{ session_token: string }>(place, "", "POST", "users/login", mine);
  const { page } = await open(place, login.session_token, { dark: true });
  const theme = () => page.evaluate(() => document.documentElement.dataset["theme"]);
  await page.goto("/workspaces", { waitUntil: "commit" });
  await page.waitForFunction(() => document.body !== null);
  expect(await theme()).toBe("dark");
  await page.getByRole("button", { name: "Theme" }).click();
  await page.getByRole("menuitem", { name: "Light" }).click();
  expect(await theme()).toBe("light");
  await page.reload();
  expect(await theme()).toBe("light");
  const stored = () => api<object>(place, login.session_token, "GET", "users/me/appearance");
  await expect.poll(stored).toEqual({ theme_preference: "light", terminal_font: "" });

  // Another browser has it after the sign-in, and keeps it for the pages before one.
  const { page: other, context } = await open(place, login.session_token, { dark: true });
  await other.goto("/account");
  await other.locator("html[data-theme=light]").waitFor();
  await context.clearCookies();
  await other.goto("/login");
  await other.getByLabel("Email").waitFor();
  expect(await other.evaluate(() => document.documentElement.dataset["theme"])).toBe("light");

  // The account's page changes it, and the font of terminals.
  await page.goto("/account");
  await page.getByRole("combobox", { name: "Theme" }).selectOption("system");
  await page.locator("html[data-theme=dark]").waitFor();
  await page.getByLabel("Terminal font").selectOption("Fira Code");
  await page.locator("form", { hasText: "Terminal font" }).getByRole("button", { name: "Save" }).click();
  await expect.poll(stored).toEqual({ theme_preference: "auto", terminal_font: "fira-code" });
  await axe(page, "the account's page");
});

it("stores a theme that was chosen before the server kept one", async () => {
  const mine = { email: "ivo@example.com", password };
  await api(place, token, "POST", "users", { ...mine, username: "ivo", name: "" });
  const login = await api<{ session_token: string }>(place, "", "POST", "users/login", mine);
  const { page } = await open(place, login.session_token);
  await page.addInitScript(() => localStorage.setItem("theme", "dark"));
  await page.goto("/templates");
  await page.locator("html[data-theme=dark]").waitFor();
  await expect
    .poll(() => api<object>(place, login.session_token, "GET", "users/me/appearance"))
    .toEqual({ theme_preference: "dark", terminal_font: "" });
});

it("never leads to another site after a sign-in", async () => {
  const { page } = await open(place);
  await page.goto("/login?redirect=https://example.invalid/");
  await signIn(page);
  await page.waitForURL(`${place.url}/workspaces`);
});
