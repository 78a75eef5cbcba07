// Accounts at other services: linked from the form that needs one and from a page of their own, and unlinked.
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer, type Server as HTTPServer } from "node:http";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { axe, fits, open, withBrowser } from "./browser";
import { run, Server } from "./server";
import { signUp } from "./setup";

withBrowser();
let server: Server;
let forge: HTTPServer;
let token: string;
let denies = false;
let word = "authorization_pending"; // the forge's for a code
let installations: unknown; // of the forge's app; undefined: it has none

const source = `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_external_auth" "forge" {
  id = "forge"
}
data "coder_external_auth" "other" {
  id       = "other"
  optional = true
}
resource "terraform_data" "x" {
  input = nonsensitive(data.coder_external_auth.forge.access_token != "")
}
`;

beforeAll(async () => {
  forge = createServer((req, res) => {
    const url = new URL(req.url!, "http://forge");
    if (url.pathname === "/authorize") {
      const back = new URL(url.searchParams.get("redirect_uri")!);
      back.searchParams.set("state", url.searchParams.get("state")!);
      back.searchParams.set(denies ? "error" : "code", denies ? "access_denied" : "the-code");
      res.writeHead(302, { Location: back.href }).end();
    } else if (url.pathname === "/device") {
      res.writeHead(200, { "Content-Type": "application/json" }).end(
        JSON.stringify({
          device_code: "the-device",
          user_code: "WDJB-MJHT",
          verification_uri: "http://code.apps.localhost/enter",
          expires_in: 900,
          interval: 1,
        }),
      );
    } else if (url.pathname === "/token" && url.searchParams.has("device") && word !== "") {
      res.writeHead(400, { "Content-Type": "application/json" }).end(JSON.stringify({ error: word }));
    } else if (url.pathname === "/token") {
      res
        .writeHead(200, { "Content-Type": "application/json" })
        .end(JSON.stringify({ access_token: "the-token", token_type: "bearer" }));
    } else if (url.pathname === "/installations") {
      res.writeHead(installations ? 200 : 403).end(JSON.stringify({ installations }));
    } else {
      res.writeHead(req.headers.authorization === "Bearer the-token" ? 200 : 401).end("{}");
    }
  });
  await new Promise<void>((resolve) => forge.listen(0, "127.0.0.1", resolve));
  const { port } = forge.address() as { port: number };
  server = await Server.make();
  for (const [i, id] of ["forge", "other", "app"].entries()) {
    const name = `CODER_EXTERNAL_AUTH_${i}_`;
    Object.assign(server.extra, {
      [`${name}ID`]: id,
      [`${name}TYPE`]: "custom",
      [`${name}DISPLAY_NAME`]: `The ${id} <b>service</b>`,
      [`${name}CLIENT_ID`]: "client",
      [`${name}CLIENT_SECRET`]: "secret",
      // The suite complains of requests to other hosts; what is below this name is its own.
      [`${name}AUTH_URL`]: `http://${id}.apps.localhost:${port}/authorize`,
      [`${name}TOKEN_URL`]: `http://127.0.0.1:${port}/token`,
      [`${name}VALIDATE_URL`]: `http://127.0.0.1:${port}/user`,
      [`${name}REVOKE_URL`]: `http://127.0.0.1:${port}/revoke`, // refuses
    });
  }
  Object.assign(server.extra, {
    CODER_EXTERNAL_AUTH_2_APP_INSTALL_URL: `http://app.apps.localhost:${port}/install`,
    CODER_EXTERNAL_AUTH_2_APP_INSTALLATIONS_URL: `http://127.0.0.1:${port}/installations`,
    CODER_EXTERNAL_AUTH_3_ID: "code",
    CODER_EXTERNAL_AUTH_3_TYPE: "custom",
    CODER_EXTERNAL_AUTH_3_DISPLAY_NAME: "The code service",
    CODER_EXTERNAL_AUTH_3_CLIENT_ID: "client",
    CODER_EXTERNAL_AUTH_3_DEVICE_FLOW: "true",
    CODER_EXTERNAL_AUTH_3_DEVICE_CODE_URL: `http://127.0.0.1:${port}/device`,
    CODER_EXTERNAL_AUTH_3_TOKEN_URL: `http://127.0.0.1:${port}/token?device`,
    CODER_EXTERNAL_AUTH_3_VALIDATE_URL: `http://127.0.0.1:${port}/user`,
  });
  await server.start();
  token = await signUp(server);
  const dir = join(server.place.dir, "needing");
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "main.tf"), source);
  await run(server.place, ["templates", "push", "needing", "-d", dir, "-y"]);
});

afterAll(async () => {
  forge?.close();
  await server?.cleanup();
});

it("asks for the account that a template needs, and enables the form when it is linked", async () => {
  const { page, context } = await open(server.place, token);
  await page.goto("/templates/needing/workspace");
  await page.getByLabel("Name").fill("dev");
  const create = page.getByRole("button", { name: "Create workspace" });
  await page.getByText("Required").waitFor();
  await page.getByText("Optional").waitFor();
  expect(await create.isDisabled()).toBe(true);
  await axe(page, "form with logins");
  await fits(page, "form with logins");
  const opened = context.waitForEvent("page");
  await page.getByRole("link", { name: "Link The forge <b>service</b>" }).click();
  const popup = await opened;
  await popup.getByText("Linked", { exact: true }).waitFor();
  expect(new URL(popup.url()).pathname).toBe("/external-auth/forge");
  await page.getByText("Linked", { exact: true }).waitFor(); // the form has noticed, and has kept what was typed
  await create.click();
  await page.waitForURL("**/@ada/dev");
  await page.getByRole("button", { name: "Stop" }).waitFor({ timeout: 60_000 });
});

it("links and unlinks an account on its page", async () => {
  const { page } = await open(server.place, token);
  await page.goto("/account");
  await page.getByText("The other <b>service</b>").waitFor();
  await page.getByRole("link", { name: "Manage" }).nth(1).click();
  await page.waitForURL("**/external-auth/other");
  await axe(page, "login");
  denies = true;
  await page.getByRole("link", { name: /^Link / }).click();
  await page.getByRole("alert").getByText("declined").waitFor();
  denies = false;
  await page.getByRole("link", { name: /^Link / }).click();
  await page.getByText("Linked", { exact: true }).waitFor();
  expect(await page.getByRole("alert").count()).toBe(0);
  await page.getByRole("button", { name: "Unlink" }).click();
  await page.getByText("revokes the access as well").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Unlink" }).click();
  await page.getByText("The other <b>service</b> did not revoke the token.").waitFor();
  await page.getByRole("link", { name: /^Link / }).waitFor();
  // What the address says is shown only where it is one of the server's words.
  await page.goto("/external-auth/other?failed=<script>alert(1)</script>");
  await page.getByRole("link", { name: /^Link / }).waitFor();
  expect(await page.getByRole("alert").count()).toBe(0);
  await page.goto("/external-auth/unknown");
  await page.getByText("Unknown provider").waitFor();
});

it("links an account with a code that is entered at the service", async () => {
  const { page } = await open(server.place, token);
  const asked = () =>
    page.waitForResponse((r) => r.request().method() === "POST" && r.url().endsWith("/external-auth/code/device"));
  await page.goto("/external-auth/code/callback"); // where links to a sign-in lead
  await page.waitForURL("**/external-auth/code");
  await page.getByRole("button", { name: "Link The code service" }).click();
  await page.getByText("Enter only a code that you see here").waitFor();
  expect(await page.getByLabel("code", { exact: true }).inputValue()).toBe("WDJB-MJHT");
  expect(await page.getByRole("link", { name: "/enter" }).getAttribute("href")).toBe(
    "http://code.apps.localhost/enter",
  );
  await axe(page, "code");
  await fits(page, "code");
  expect((await asked()).status()).toBe(400); // and it asks again
  word = "access_denied";
  await page.getByRole("alert").getByText("declined").waitFor();
  word = "";
  await page.getByRole("button", { name: "Get another code" }).click();
  await page.getByText("Linked", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Unlink" }).waitFor();
});

it("lists the accounts that have installed the provider's app", async () => {
  const { page } = await open(server.place, token);
  const card = page.getByRole("heading", { name: "Installations" });
  await page.goto("/external-auth/app");
  await page.getByRole("link", { name: /^Link / }).click();
  await page.getByText("Linked", { exact: true }).waitFor();
  expect(await card.count()).toBe(0); // an OAuth application has none
  installations = [];
  await page.reload();
  await card.waitFor();
  await page.getByText("The app is not installed yet").waitFor();
  const install = page.getByRole("link", { name: "Install the app" });
  expect(new URL((await install.getAttribute("href"))!).pathname).toBe("/install");
  await axe(page, "no installation");
  const long = "w".repeat(120);
  installations = [
    { id: 1, html_url: "http://app.apps.localhost/settings/1", account: { login: "ann" } },
    { id: 2, html_url: "javascript:alert(1)", account: { slug: "<b>corp</b>" } },
    { id: 3, html_url: "http://app.apps.localhost/settings/3", account: { login: long } },
    { id: 4, html_url: "http://app.apps.localhost/settings/4", account: null },
  ];
  await page.reload();
  await page.getByRole("link", { name: "Install for another account" }).waitFor();
  const rows = page.locator("main li");
  expect(await rows.allTextContents()).toEqual(["ann", "<b>corp</b>", long]);
  const addresses = await rows.evaluateAll((all) => all.map((row) => row.querySelector("a")?.getAttribute("href")));
  expect(addresses.map((at) => at ?? "")).toEqual([
    "http://app.apps.localhost/settings/1",
    "",
    "http://app.apps.localhost/settings/3",
  ]);
  await axe(page, "installations");
  await fits(page, "installations");
});
