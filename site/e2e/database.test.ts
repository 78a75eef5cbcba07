// What a person at the dashboard sees while PostgreSQL is killed as by a crash of its machine, and once it is back or
// its standby has taken its place. A server of this file's own, with PostgreSQL outside of it.
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { open, shows, types, withBrowser } from "./browser";
import { Postgres } from "./postgres";
import { run, Server, until } from "./server";
import { isHeld, pushHeld, pushProcess, signUp } from "./setup";

withBrowser();
let server: Server;
let primary: Postgres;
let standby: Postgres;
let token: string;
let go: string; // a file: builds of the template "held" wait until it exists

const slow = 300_000; // ms, for builds and commands on a busy machine
const noDatabase = /The database (is not reachable|cannot accept connections now)/;

beforeAll(async () => {
  [primary, standby] = await Postgres.pair();
  server = await Server.make();
  go = join(server.place.dir, "go");
  server.extra = {
    CODER_PG_CONNECTION_URL: Postgres.urlOf(standby, primary),
    CODER_PROVISIONER_DAEMONS: "1",
    CODER_PROVISIONER_ISOLATION: "none",
  };
  await server.start();
  token = await signUp(server);
  await pushProcess(server.place);
  await run(server.place, ["create", "stays", "-t", "process", "-y"]);
  await pushHeld(server.place, go);
});
afterAll(async () => {
  await server?.cleanup();
  await standby?.cleanup();
  await primary?.cleanup();
});

// through opens pages, kills the database in the middle of a build, has it return, and expects that all go on.
async function through(name: string, back: () => Promise<void>) {
  rmSync(go, { force: true });
  await isHeld(server.place, name);
  const build = (await open(server.place, token)).page;
  const list = (await open(server.place, token)).page;
  const terminal = (await open(server.place, token)).page;
  const health = (await open(server.place, token)).page;
  await build.goto(`/@ada/${name}/builds/1`);
  await build.getByRole("log").getByText("is held", { exact: false }).first().waitFor();
  await list.goto("/workspaces");
  const row = list.getByRole("listitem").filter({ hasText: name });
  await row.getByText("Starting").first().waitFor();
  await terminal.goto("/@ada/stays/terminal");
  await types(terminal, `KEPT=${name}; echo before-$((6*7))\n`);
  await shows(terminal, "before-42");
  await health.goto("/health");
  await health.getByText(/All checks passed|attention/).waitFor();
  const pages = [build, list, terminal, health];
  let loads = 0;
  for (const page of pages) page.on("load", () => loads++);

  const written = primary.sql("SELECT pg_current_wal_flush_lsn()");
  await until("the standby has it", () => standby.sql(`SELECT pg_last_wal_replay_lsn() >= '${written}'`) === "t");
  await primary.kill();
  await health.getByText("database_unreachable").first().waitFor();
  await list.getByRole("link", { name: "Templates", exact: true }).click();
  await list.getByRole("alert").getByText(noDatabase).first().waitFor();
  await types(terminal, "echo during-$KEPT\n");
  await shows(terminal, `during-${name}`);
  for (const page of pages)
    expect(await page.getByText(/Cannot reach the server|was updated|Sign in to |signed out/).count()).toBe(0);

  await back();
  await list.getByText(noDatabase).first().waitFor({ state: "detached" });
  await list.getByRole("link", { name: "held", exact: true }).waitFor();
  await health.getByText("database_unreachable").first().waitFor({ state: "detached" });
  writeFileSync(go, "");
  await build.getByRole("heading", { level: 1 }).getByText("Running").waitFor({ timeout: 60_000 });
  await build
    .getByRole("log")
    .getByText(/Apply complete|Creation complete/)
    .first()
    .waitFor();
  await list.getByRole("link", { name: "Workspaces", exact: true }).click();
  await row.getByText("Running").first().waitFor();
  await types(terminal, "echo after-$KEPT\n");
  await shows(terminal, `after-${name}`);
  await shows(terminal, "before-42");
  expect(loads).toBe(0);
  // Nothing is lost, and the database takes new work.
  await run(server.place, ["stop", name, "-y"]);
  await row.getByText("Stopped").first().waitFor();
}

it(
  "goes on without a reload after PostgreSQL was killed and is back",
  () => through("back", () => primary.start()),
  slow,
);

it(
  "goes on without a reload with the standby that is promoted",
  () => through("promoted", () => standby.promote()),
  slow,
);
