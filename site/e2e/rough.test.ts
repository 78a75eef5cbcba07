// A server that stops and starts again, and one that limits sign-ins. This file has its own server.
import { afterAll, beforeAll, expect, it } from "vitest";
import { open, withBrowser } from "./browser";
import { run, Server } from "./server";
import { pushProcess, signUp } from "./setup";

withBrowser();
let server: Server;
let token: string;
beforeAll(async () => {
  server = await Server.make();
  await server.start();
  token = await signUp(server);
  await pushProcess(server.place);
});
afterAll(() => server.cleanup());

it("reports that the server is down, and reconnects", async () => {
  const { page } = await open(server.place, token);
  await page.goto("/workspaces");
  await page.getByText("You have no workspaces").waitFor();
  await server.stop("SIGKILL");
  await page
    .getByText(/Cannot reach the server/)
    .first()
    .waitFor();
  await server.start();
  await page
    .getByText(/Cannot reach the server/)
    .first()
    .waitFor({ state: "detached" });
  // What happens from now on is seen without a reload.
  await run(server.place, ["create", "after", "-t", "process", "-y"]);
  await page.getByRole("link", { name: "after", exact: true }).waitFor();
  expect(await page.getByRole("alert").count()).toBe(0);
});

it("keeps a terminal's shell while the server restarts", async () => {
  await run(server.place, ["create", "shell", "-t", "process", "-y"]);
  const { page } = await open(server.place, token);
  await page.goto("/@ada/shell/terminal");
  await page.locator('[data-terminal="open"]').waitFor();
  await page.locator(".xterm-helper-textarea").focus();
  const shows = (text: string) =>
    page.waitForFunction(
      (t) =>
        [...document.querySelectorAll(".xterm-rows > div")].some((r) =>
          (r as HTMLElement).innerText.replaceAll("\u00a0", " ").includes(t),
        ),
      text,
    );
  await page.keyboard.type("KEPT=yes; echo before-the-restart\n");
  await shows("before-the-restart");
  await server.stop();
  await page.getByText(/Connection lost/).waitFor();
  await server.start();
  await page.locator('[data-terminal="open"]').waitFor();
  await shows("before-the-restart");
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.type("echo still-$KEPT\n");
  await shows("still-yes");
});

it("reports too many wrong passwords", async () => {
  const { page } = await open(server.place);
  await page.goto("/login");
  let status = 0;
  for (let tries = 0; status !== 429 && tries < 1000; tries++) {
    ({ status } = await fetch(`${server.place.url}/api/v2/users/login`, {
      method: "POST",
      body: JSON.stringify({ email: "ada@example.com", password: "x" }),
    }));
  }
  await page.getByLabel("Email").fill("ada@example.com");
  await page.getByLabel("Password").fill("x");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText(/Too many wrong passwords for this account from your address/).waitFor();
  expect(await page.getByRole("alert").innerText()).toMatch(/Try again in \d+ seconds/);
});
