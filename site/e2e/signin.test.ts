// Sign-in at identity providers: OpenID Connect and GitHub's device flow, refusals, conversion, and passwords that are
// switched off. The providers are small servers of this file.
import { createHash, createSign, generateKeyPairSync } from "node:crypto";
import { createServer, type IncomingMessage, type Server as HTTPServer, type ServerResponse } from "node:http";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { axe, fits, open, withBrowser } from "./browser";
import { api, Server } from "./server";
import { password, signUp } from "./setup";

withBrowser();
let server: Server;
let provider: HTTPServer;
let token: string;

// Who signs in next, or the error that the provider answers with.
let who: Record<string, unknown> = {};
let denies = "";
// The device flow has been confirmed at GitHub.
let confirmed = false;

const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const sent = new Map<string, { nonce: string; challenge: string }>();
const part = (v: unknown) => Buffer.from(JSON.stringify(v)).toString("base64url");

function sign(claims: object): string {
  const text = `${part({ alg: "RS256", kid: "k" })}.${part(claims)}`;
  return `${text}.${createSign("RSA-SHA256").update(text).sign(privateKey).toString("base64url")}`;
}

const answer = (res: ServerResponse, body: object, status = 200) =>
  res.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));

async function form(req: IncomingMessage): Promise<URLSearchParams> {
  let text = "";
  for await (const piece of req) text += String(piece);
  return new URLSearchParams(text);
}

// exchange answers the token endpoint of the OpenID provider: a code is good for one use, by its browser.
async function exchange(req: IncomingMessage, res: ServerResponse, issuer: string) {
  const given = await form(req);
  const begun = sent.get(given.get("code") ?? "");
  sent.delete(given.get("code") ?? "");
  const proof = createHash("sha256")
    .update(given.get("code_verifier") ?? "")
    .digest("base64url");
  if (!begun || begun.challenge !== proof) return answer(res, { error: "invalid_grant" }, 400);
  const now = Math.floor(Date.now() / 1000);
  const claims = { iss: issuer, aud: "client", exp: now + 300, iat: now, nonce: begun.nonce, ...who };
  return answer(res, { access_token: "a", token_type: "Bearer", expires_in: 300, id_token: sign(claims) });
}

function serve(req: IncomingMessage, res: ServerResponse, port: number): unknown {
  const issuer = `http://127.0.0.1:${port}`;
  const url = new URL(req.url!, issuer);
  switch (url.pathname) {
    case "/.well-known/openid-configuration":
      return answer(res, {
        issuer,
        // The suite complains of requests to other hosts; what is below this name is its own.
        authorization_endpoint: `http://id.apps.localhost:${port}/authorize`,
        token_endpoint: `${issuer}/token`,
        jwks_uri: `${issuer}/keys`,
        id_token_signing_alg_values_supported: ["RS256"],
      });
    case "/keys":
      return answer(res, { keys: [{ ...publicKey.export({ format: "jwk" }), kid: "k", alg: "RS256", use: "sig" }] });
    case "/authorize": {
      const back = new URL(url.searchParams.get("redirect_uri")!);
      back.searchParams.set("state", url.searchParams.get("state")!);
      const code = `code-${sent.size}-${Date.now()}`;
      back.searchParams.set(denies ? "error" : "code", denies || code);
      sent.set(code, { nonce: url.searchParams.get("nonce")!, challenge: url.searchParams.get("code_challenge")! });
      return res.writeHead(302, { Location: back.href }).end();
    }
    case "/token":
      return exchange(req, res, issuer);
    case "/login/device/code":
      return answer(res, {
        device_code: "dev",
        user_code: "ABCD-1234",
        verification_uri: `http://github.apps.localhost:${port}/login/device`,
        expires_in: 900,
        interval: 1,
      });
    case "/login/oauth/access_token":
      if (!confirmed) return answer(res, { error: "authorization_pending" }, 400);
      return answer(res, { access_token: "g", token_type: "bearer" });
    case "/api/v3/user":
      return answer(res, { id: 7, login: "octo", name: "Octo Cat" });
    case "/api/v3/user/emails":
      return answer(res, [{ email: "octo@corp.example", primary: true, verified: true }]);
  }
  return res.writeHead(404).end();
}

const grace = {
  sub: "1",
  email: "grace@corp.example",
  email_verified: true,
  preferred_username: "grace",
  name: "Grace Hopper",
};
const button = "Sign in with the company's account";

beforeAll(async () => {
  let port = 0;
  provider = createServer((req, res) => void serve(req, res, port));
  await new Promise<void>((resolve) => provider.listen(0, "127.0.0.1", resolve));
  port = (provider.address() as { port: number }).port;
  server = await Server.make();
  Object.assign(server.extra, {
    CODER_OIDC_ISSUER_URL: `http://127.0.0.1:${port}`,
    CODER_OIDC_CLIENT_ID: "client",
    CODER_OIDC_CLIENT_SECRET: "secret",
    CODER_OIDC_EMAIL_DOMAIN: "corp.example",
    CODER_OIDC_SIGN_IN_TEXT: "the company's account",
    CODER_OIDC_ICON_URL: "/icon/terminal.svg",
    CODER_OIDC_GROUP_FIELD: "groups",
    CODER_OIDC_GROUP_AUTO_CREATE: "true",
    CODER_OAUTH2_GITHUB_ENTERPRISE_BASE_URL: `http://127.0.0.1:${port}`,
    CODER_OAUTH2_GITHUB_CLIENT_ID: "client",
    CODER_OAUTH2_GITHUB_CLIENT_SECRET: "secret",
    CODER_OAUTH2_GITHUB_ALLOW_EVERYONE: "true",
    CODER_OAUTH2_GITHUB_ALLOW_SIGNUPS: "true",
    CODER_OAUTH2_GITHUB_DEVICE_FLOW: "true",
  });
  await server.start();
  token = await signUp(server);
});

afterAll(async () => {
  provider?.close();
  await server?.cleanup();
});

// looks checks a page in the usual sizes and colors.
async function looks(page: Page, what: string) {
  await axe(page, what);
  for (const width of [390, 1280]) {
    await page.setViewportSize({ width, height: 900 });
    await fits(page, `${what} at ${width}`);
  }
  await page.emulateMedia({ colorScheme: "dark" });
  await axe(page, `${what}, dark`);
  await page.emulateMedia({ colorScheme: "light" });
}

it("signs in at the OpenID provider, and returns to the page that was opened", async () => {
  who = { ...grace, groups: ["developers"] };
  const { page } = await open(server.place);
  await page.goto("/templates");
  await page.waitForURL("**/login?redirect=%2Ftemplates");
  const link = page.getByRole("link", { name: button });
  expect(await link.locator("img").getAttribute("src")).toBe("/icon/terminal.svg");
  await page.getByRole("link", { name: "Sign in with GitHub" }).waitFor();
  await looks(page, "sign-in");
  await link.click();
  await page.waitForURL("**/templates");
  await page.goto("/account");
  await page.getByText("You sign in with OpenID Connect").waitFor();
  await looks(page, "account without a password");
  const groups = await api<{ name: string; total_member_count: number }[]>(server.place, token, "GET", "groups");
  expect(groups.filter((g) => g.name === "developers").map((g) => g.total_member_count)).toEqual([1]);
});

it("says why a sign-in is refused, and leads back", async () => {
  const { page } = await open(server.place);
  const refused = async (sentence: string | RegExp) => {
    await page.goto("/login");
    await page.getByRole("link", { name: button }).click();
    await page.getByRole("heading", { name: sentence }).waitFor();
    await page.getByRole("link", { name: "Back to the sign-in page" }).waitFor();
  };
  who = { ...grace, sub: "2", email: "eve@elsewhere.example" };
  await refused("Addresses of elsewhere.example may not sign in here");
  await looks(page, "refused sign-in");
  who = { ...grace, sub: "2", email: "eve@corp.example", email_verified: false };
  await refused("The email address eve@corp.example is not verified at the identity provider");
  who = { ...grace, sub: "2" };
  await refused("The address grace@corp.example belongs to an account of another user at the identity provider");
  denies = "access_denied";
  await refused("The sign-in was declined at the identity provider");
  denies = "server_error";
  await refused("The identity provider ended the sign-in with the error server_error");
  denies = "";
  who = { ...grace, email: 5 };
  await refused(/claim "email" must be text/);
  await page.getByRole("link", { name: "Back to the sign-in page" }).click();
  await page.waitForURL("**/login");
});

it("shows GitHub's code until it is entered there", async () => {
  confirmed = false;
  const { page } = await open(server.place);
  await page.goto("/login");
  await page.getByRole("link", { name: "Sign in with GitHub" }).click();
  await page.waitForURL("**/login/device?state=*");
  const code = page.getByRole("textbox", { name: "code" });
  await code.waitFor();
  expect(await code.inputValue()).toBe("ABCD-1234");
  await looks(page, "device");
  confirmed = true;
  await page.waitForURL("**/workspaces");
  await page.goto("/account");
  await page.getByText("You sign in with GitHub").waitFor();
});

it("converts an account with a password, and refuses a wrong one", async () => {
  await api(server.place, token, "POST", "users", { username: "pat", email: "pat@corp.example", password, name: "" });
  const session = await fetch(`${server.place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email: "pat@corp.example", password }),
  });
  const { session_token } = (await session.json()) as { session_token: string };
  who = { sub: "3", email: "pat@corp.example", email_verified: true, preferred_username: "pat" };

  // The address alone does not open the account.
  const stranger = await open(server.place);
  await stranger.page.goto("/login");
  await stranger.page.getByRole("link", { name: button }).click();
  await stranger.page.getByRole("heading", { name: /belongs to an account that does not sign in with/ }).waitFor();

  const { page } = await open(server.place, session_token);
  await page.goto("/account");
  await page.getByRole("button", { name: "Use the company's account…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Password").fill("wrong");
  await dialog.getByRole("button", { name: "Continue" }).click();
  await dialog
    .getByText(/is wrong/)
    .first()
    .waitFor();
  await looks(page, "conversion");
  await dialog.getByLabel("Password").fill(password);
  await dialog.getByRole("button", { name: "Continue" }).click();
  await page.waitForURL("**/account");
  await page.getByText("You sign in with OpenID Connect").waitFor();
  expect(await page.getByRole("button", { name: "Use the company's account…" }).count()).toBe(0);
});

it("resets a password, as far as the server sends mail", async () => {
  const { page } = await open(server.place);
  await page.goto("/login");
  await page.getByRole("link", { name: "Forgot your password?" }).click();
  await page.getByRole("heading", { name: "Reset your password" }).waitFor();
  await page.getByLabel("Email").fill("ada@example.com");
  await looks(page, "reset password");
  await page.getByRole("button", { name: "Send me a link" }).click();
  await page.getByRole("alert").waitFor(); // this server sends no mail
  await page.goto("/reset-password?otp=never-sent");
  await page.getByLabel("Email").fill("ada@example.com");
  await page.getByLabel("New password").fill("Another-Horse-9-Battery");
  await looks(page, "new password");
  await page.getByRole("button", { name: "Set new password" }).click();
  await page.getByRole("alert").waitFor();
  await page.getByRole("link", { name: "Back to the sign-in page" }).click();
  await page.waitForURL("**/login");
});

it("hides the password where it is switched off, and keeps it for owners", async () => {
  await server.stop();
  server.extra["CODER_DISABLE_PASSWORD_AUTH"] = "true";
  await server.start();
  const { page } = await open(server.place);
  await page.goto("/login");
  await page.getByRole("link", { name: button }).waitFor();
  expect(await page.getByLabel("Password").isVisible()).toBe(false);
  expect(await page.getByRole("link", { name: "Forgot your password?" }).count()).toBe(0);
  await looks(page, "passwords off");
  await page.getByText("Sign in with a password (owners only)").click();
  await page.getByLabel("Email").fill("ada@example.com");
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.waitForURL("**/workspaces");
});
