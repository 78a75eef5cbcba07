// What a person at the dashboard sees while the disk of the database or of a provisioner is full, and once there is
// space again. Only root can make a small disk: otherwise, and where root may not mount, these tests are skipped.
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { axe, fits, open, withBrowser } from "./browser";
import { Provisioner, run, Server, until } from "./server";
import { pushProcess, signUp } from "./setup";

withBrowser();
let server: Server;
let token: string;
let disk = ""; // where the small disk is; "" if there is none
let own = ""; // where the provisioner's small disk is
let provisioner: Provisioner | undefined;
let go: string; // a file: the build goes on once it exists

const psk = "of-the-provisioner-with-a-small-disk";

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
  await provisioner?.stop();
  if (own) execFileSync("umount", ["-l", own]);
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

it("says that the provisioner's own disk is full, with the remedy, and builds again when there is space", async ({
  skip,
}) => {
  if (!disk) return skip("only root can mount a small disk");
  await pushProcess(server.place);
  // From now on the only provisioner is one with a disk of its own.
  await server.stop();
  server.extra = { CODER_PROVISIONER_DAEMONS: "0", CODER_PROVISIONER_DAEMON_PSK: psk };
  await server.start();
  const at = join(server.place.dir, "small");
  mkdirSync(at);
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=200m,mode=755", "small", at], { stdio: "ignore" });
  own = at;
  provisioner = await Provisioner.start(server.place, "small", psk, own);
  const { page } = await open(server.place, token);
  const status = page.getByRole("heading", { level: 1 });

  fill(join(own, "ballast"));
  await run(server.place, ["create", "full", "-t", "process", "-y", "--no-wait"]);
  await page.goto("/@ada/full");
  await status.getByText("Failed").waitFor({ timeout: 60_000 });
  let loads = 0;
  page.on("load", () => loads++);
  const full = /The provisioner's disk is full: 0 of 2\d\d MB free in \S+small/;
  const remedy = /Remove files that are no longer needed\. .* mounted with another size\./;
  await page.getByText(full).first().waitFor();
  await page.getByText(remedy).first().waitFor();
  expect(await page.getByText(/no space left|database's disk/).count()).toBe(0);
  const build = (await open(server.place, token)).page;
  await build.goto("/@ada/full/builds/1");
  await build.getByText(full).first().waitFor();
  await build.getByText(remedy).first().waitFor();
  await axe(build, "a build on a full disk");
  await build.setViewportSize({ width: 390, height: 900 });
  await fits(build, "a build on a full disk");

  rmSync(join(own, "ballast"));
  await page.getByRole("button", { name: "Start full" }).click();
  await status.getByText("Running").waitFor({ timeout: 60_000 });
  await page.getByText(full).waitFor({ state: "detached" });
  expect(loads).toBe(0);
}, 300_000);
