// The upgrade of a deployment of one server, as people see it at the dashboard: an owner who looks at the health page,
// a user whose build the server waits for, one whose build is in the queue, and one who waits in a terminal.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { axe, fits, open, withBrowser } from "./browser";
import { api, run, Server, until } from "./server";
import { isHeld, password, pushHeld, signUp } from "./setup";

withBrowser();
let server: Server;
let token: string;
let bob: string; // another user's token
let go: string; // a file: builds wait until it exists

// The version of the programs, and a later one that is as long.
const version = readFileSync(join(import.meta.dirname, "../../VERSION"), "utf8").trim();
const next = version.replace(/\d(?=\+|$)/, (digit) => String((Number(digit) + 1) % 10));

beforeAll(async () => {
  server = await Server.make();
  server.extra = {
    CODER_PROVISIONER_DAEMONS: "1",
    CODER_SHUTDOWN_DEADLINE: "10m",
    CODER_PROVISIONER_ISOLATION: "none",
  };
  await server.start();
  token = await signUp(server);
  const user = { username: "bob", email: "bob@example.com", password };
  await api(server.place, token, "POST", "users", user);
  const signedIn = await api<{ session_token: string }>(server.place, "", "POST", "users/login", user);
  bob = signedIn.session_token;
  mkdirSync(join(server.place.dir, "home-bob"), { recursive: true });
  await run(server.place, ["login", server.place.url, "--token", bob], "bob");
  go = join(server.place.dir, "go");
  await pushHeld(server.place, go);
});
afterAll(() => server?.cleanup());

const left = /^(\d+ min( \d+ s)?|\d+(\.0)? s) left$/;
const status = (page: Page) => page.getByRole("heading", { level: 1 });
const built = (user: string, name: string) => async () => {
  const { latest_build } = await api<{ latest_build: { status: string } }>(
    server.place,
    token,
    "GET",
    `users/${user}/workspace/${name}`,
  );
  return latest_build.status === "running";
};

it("shows who waits while the server of a deployment is upgraded", { timeout: 300_000 }, async () => {
  const { place } = server;
  rmSync(go, { force: true });
  await isHeld(place, "waited", "held", "bob");
  const waits = run(place, ["create", "queued", "-t", "held", "-y"]); // in a terminal
  await until("a build is in the queue", async () => (await run(place, ["list"])).includes("queued"));
  const operator = (await open(place, token)).page;
  const owner = (await open(place, bob)).page;
  const queued = (await open(place, token)).page;
  await operator.goto("/health");
  await operator.getByRole("heading", { name: "Health", exact: true }).waitFor();
  await owner.goto("/@bob/waited");
  await status(owner).getByText("Starting").waitFor();
  await queued.goto("/@ada/queued");
  await queued
    .getByText(/busy; position 1 in the queue/)
    .first()
    .waitFor();

  // The operator replaces the program and restarts the service.
  const stopped = server.stop();
  await operator.getByRole("heading", { name: "Servers that are stopping" }).waitFor();
  const row = operator
    .getByRole("region", { name: "Servers that are stopping" })
    .getByRole("row")
    .filter({ hasText: "bob/waited: start" });
  await row.getByRole("cell", { name: "bob", exact: true }).waitFor();
  const first = await row.getByText(left).innerText();
  await operator.waitForFunction(
    (was) => ![...document.querySelectorAll("time")].some((t) => t.textContent === was),
    first,
  );
  await axe(operator, "health while the only server stops");
  await operator.setViewportSize({ width: 390, height: 900 });
  await fits(operator, "health while the only server stops");
  await owner.getByText(/The server of the provisioner built-in-0@\S+ is stopping\. It waits for this job/).waitFor();
  await owner.getByText(left).waitFor();
  const held =
    /The provisioner built-in-0@\S+ takes no job: its server is stopping, and waits for the job that it runs/;
  await queued.getByText(held).first().waitFor();
  await queued
    .getByText(/It runs once a server is back/)
    .first()
    .waitFor();
  await queued.getByRole("log").getByText(held).waitFor();
  await axe(queued, "a build in the queue of a server that stops");
  await until("the log of the server counts down", () => /waiting for running jobs".* jobs=1 left=/.test(server.log()));

  // A page that is opened now works, too.
  const late = (await open(place, bob)).page;
  await late.goto("/@bob/waited");
  await late.getByText(left).waitFor();

  writeFileSync(go, "");
  await stopped;
  for (const page of [operator, owner, queued, late])
    await page
      .getByText(/Cannot reach the server/)
      .first()
      .waitFor();
  const program = join(place.dir, "coder-next"); // the same program, but for its version
  const bytes = readFileSync(Server.program);
  for (let at = bytes.indexOf(version); at >= 0; at = bytes.indexOf(version, at + 1)) bytes.write(next, at);
  writeFileSync(program, bytes, { mode: 0o755 });
  server.program = program;
  await server.start();
  for (const page of [operator, owner, queued, late])
    await page
      .getByText(/Cannot reach the server/)
      .first()
      .waitFor({ state: "detached" });
  await until("the build that the server waited for succeeded", built("bob", "waited"));
  await status(owner).getByText("Running").waitFor();
  await until("the build in the queue succeeded", built("ada", "queued"), 120_000);
  await status(queued).getByText("Running").waitFor();
  await operator.getByRole("heading", { name: "Servers that are stopping" }).waitFor({ state: "detached" });
  expect(await waits).toBeDefined();
});
