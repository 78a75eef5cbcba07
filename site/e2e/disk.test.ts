// What a person at the dashboard sees while the database's disk is full, and once there is space again. Only root can
// make a small disk: otherwise, and where root may not mount, these tests are skipped.
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { axe, open, withBrowser } from "./browser";
import { run, Server, until } from "./server";
import { signUp } from "./setup";

withBrowser();
let server: Server;
let token: string;
let disk = ""; // where the small disk is; "" if there is none
let go: string; // a file: the build goes on once it exists

// Prints, on a signal, more than a full disk can store.
const noisy = () => `
resource "terraform_data" "noise" {
  provisioner "local-exec" {
    command = "echo is held; while [ ! -e ${go} ]; do sleep 0.1; done; head -c 4000000 /dev/urandom | base64 -w 120"
  }
}
`;

// fill writes a file until the disk has no byte left.
function fill(name: string) {
  const file = openSync(name, "w");
  try {
    for (let size = 1 << 20; size >= 1;) {
      try {
        writeSync(file, Buffer.alloc(size));
      } catch (err) {
        if ((err as NodeJS.ErrnoException).code !== "ENOSPC") throw err;
        size = Math.floor(size / 2);
      }
    }
  } finally {
    closeSync(file);
  }
}

beforeAll(async () => {
  server = await Server.make();
  const at = join(server.place.dir, "config-admin");
  mkdirSync(at);
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=200m,mode=755", "faults", at], { stdio: "ignore" });
  } catch {
    return;
  }
  disk = at;
  go = join(server.place.dir, "go");
  server.extra = { CODER_PROVISIONER_ISOLATION: "none" };
  await server.start();
  token = await signUp(server);
  const dir = join(server.place.dir, "noisy");
  mkdirSync(dir);
  writeFileSync(join(dir, "main.tf"), noisy());
  await run(server.place, ["templates", "push", "noisy", "-d", dir, "-y"]);
});
afterAll(async () => {
  if (!disk) return server?.cleanup();
  rmSync(join(disk, "ballast"), { force: true });
  await server.stop();
  execFileSync("umount", ["-l", disk]);
  await server.cleanup();
});

it("says that the database's disk is full, and goes on when there is space", async ({ skip }) => {
  if (!disk) return skip("only root can mount a small disk");
  await run(server.place, ["create", "noisy", "-t", "noisy", "-y", "--no-wait"]);
  await until("the build is held", async () => (await run(server.place, ["logs", "noisy"])).includes("is held"));
  const { page } = await open(server.place, token);
  await page.goto("/@ada/noisy");
  const log = page.getByRole("log");
  await log.getByText("is held", { exact: false }).first().waitFor();
  const health = (await open(server.place, token)).page;
  await health.goto("/health");
  await health.getByText(/All checks passed|attention/).waitFor();
  let loads = 0;
  page.on("load", () => loads++);

  fill(join(disk, "ballast"));
  writeFileSync(go, "");
  const full = /The database's disk is full/;
  await page.getByText(full).first().waitFor({ timeout: 60_000 });
  await health
    .getByText(/database_cannot_write|The database's disk is full/)
    .first()
    .waitFor({ timeout: 60_000 });
  await axe(health, "health with a full disk");
  await page.getByRole("heading", { level: 1 }).getByText("Starting").waitFor();
  expect(await page.getByText(/Cannot reach the server|was updated|Sign in to /).count()).toBe(0);

  rmSync(join(disk, "ballast"));
  await page.getByRole("heading", { level: 1 }).getByText("Running").waitFor({ timeout: 120_000 });
  await health
    .getByText(/database_cannot_write/)
    .first()
    .waitFor({ state: "detached", timeout: 60_000 });
  expect(loads).toBe(0);
}, 300_000);
