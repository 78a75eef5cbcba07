// What a person at the dashboard sees while a part of the deployment fails, and afterwards. Two servers of this file's
// own: base has the database, second has the provisioner, and each reaches the other through a load balancer, which can
// cut their links. The builds of some templates run on rack, an external provisioner.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { Balancer } from "./balancer";
import { axe, fits, open, shows, types, withBrowser } from "./browser";
import { api, Provisioner, run, Server, until } from "./server";
import { isHeld, pushHeld, pushProcess, signUp } from "./setup";

withBrowser();
let base: Server;
let second: Server;
let roads: Balancer[]; // to base and to second, for the other one
let token: string;
let go: string; // a file: builds of the templates "held" and "racked" wait until it exists
let later: string; // the same for "late", whose builds run on rack, as those of "racked"
let rack: Provisioner;

const psk = "of-the-provisioner-of-its-own";
const elsewhere = { expect: /to another host/ }; // a server's access URL is not the page's address

// The version of the programs, and a later one that is as long.
const version = readFileSync(join(import.meta.dirname, "../../VERSION"), "utf8").trim();
const next = version.replace(/\d(?=\+|$)/, (digit) => String((Number(digit) + 1) % 10));

interface Build {
  id: string;
  build_number: number;
  status: string;
  job: { id: string; status: string; error?: string };
}
interface Workspace {
  id: string;
  latest_build: Build;
}
const workspace = (name: string) => api<Workspace>(base.place, token, "GET", `users/me/workspace/${name}`);
const linked = () =>
  until("the servers are linked", async () => {
    type Server = { id: string; answered: boolean; links: { server_id: string; connected: boolean }[] };
    const report = await api<{ servers: Server[] }>(base.place, token, "GET", "debug/health?force=true");
    const alive = report.servers.filter((s) => s.answered); // one that was killed is listed for a while
    return (
      alive.length === 2 &&
      alive.every((s) => s.links.some((l) => l.connected && alive.some(({ id }) => id === l.server_id)))
    );
  });

const built = (name: string, as: string) =>
  until(`${name} is ${as}`, async () => (await workspace(name)).latest_build.status === as);

beforeAll(async () => {
  base = await Server.make();
  second = await Server.make();
  roads = [await Balancer.start([base.place.port]), await Balancer.start([second.place.port])];
  go = join(base.place.dir, "go");
  later = join(base.place.dir, "later");
  base.extra = {
    CODER_PROVISIONER_DAEMONS: "0",
    CODER_PROVISIONER_DAEMON_PSK: psk,
    CODER_REPLICA_URL: roads[0]!.url,
  };
  await base.start();
  token = await signUp(base);
  mkdirSync(join(second.place.dir, "home-admin"), { recursive: true });
  second.extra = {
    CODER_PG_CONNECTION_URL: (await run(base.place, ["server", "postgres-builtin-url"])).trim(),
    CODER_STATE_ENCRYPTION_KEY_FILE: join(base.place.dir, "config-admin", "state-encryption.key"),
    CODER_REPLICA_URL: roads[1]!.url,
    CODER_PROVISIONER_DAEMONS: "1",
    CODER_SHUTDOWN_DEADLINE: "10m",
    CODER_PROVISIONER_DAEMON_PSK: psk,
    CODER_PROVISIONER_ISOLATION: "none",
  };
  await second.start();
  await linked();
  await pushProcess(base.place);
  await run(base.place, ["create", "stays", "-t", "process", "-y"]);
  await pushHeld(base.place, go);
  const tags = ["where=rack"];
  const args = ["--tag", tags[0]!, "--concurrency", "2"];
  rack = await Provisioner.start(base.place, "rack", psk, join(base.place.dir, "rack"), args);
  await pushHeld(base.place, go, "racked", tags);
  await pushHeld(base.place, later, "late", tags);
});
// A test that failed leaves no other deployment to the next one.
afterEach(async () => {
  writeFileSync(go, "");
  for (const server of [base, second]) if (!server.running) await server.start();
  roads[0]!.lead([base.place.port]);
  roads[1]!.lead([second.place.port]);
  await linked();
});
afterAll(async () => {
  await rack?.stop("SIGKILL");
  await second?.cleanup();
  await base?.cleanup();
  for (const road of roads ?? []) road.close();
});

const slow = 300_000; // ms, for builds and commands on a busy machine

// watch counts the loads of a page, and the wrong reasons that it shows.
function watch(page: Page) {
  const seen = { loads: 0 };
  page.on("load", () => seen.loads++);
  return {
    async unharmed() {
      expect(seen.loads).toBe(0);
      expect(await page.getByText(/The server was updated|Sign in to |signed out|page crashed/).count()).toBe(0);
    },
  };
}

const status = (page: Page) => page.getByRole("heading", { level: 1 });

it(
  "shows a queued build its place",
  async () => {
    rmSync(go, { force: true });
    await isHeld(base.place, "ahead");
    const { page } = await open(base.place, token);
    await run(base.place, ["create", "behind", "-t", "held", "-y", "--no-wait"]);
    await page.goto("/@ada/behind");
    await page
      .getByText(/busy; position 1 in the queue/)
      .first()
      .waitFor();
    await page
      .getByRole("log")
      .getByText(/1st in line/)
      .waitFor();
    await page.goto("/workspaces");
    await page
      .getByRole("listitem")
      .filter({ hasText: "behind" })
      .getByText(/position 1/)
      .waitFor();
    const seen = watch(page);
    writeFileSync(go, "");
    await page.getByText(/position 1/).waitFor({ state: "detached" });
    await built("ahead", "running");
    await built("behind", "running");
    await seen.unharmed();
  },
  slow,
);

it(
  "shows for whom a server waits that stops, counting down",
  async () => {
    rmSync(go, { force: true });
    await isHeld(base.place, "waited");
    const operator = (await open(base.place, token)).page;
    const owner = (await open(base.place, token)).page;
    const there = (await open(second.place, token, elsewhere)).page; // at the server that stops
    await operator.goto("/health");
    await operator.getByRole("heading", { name: "All servers" }).waitFor();
    for (const page of [owner, there]) {
      await page.goto("/@ada/waited");
      await status(page).getByText("Starting").waitFor();
    }
    const seen = [operator, owner, there].map(watch);
    const stopped = second.stop();
    const left = /^(\d+ min( \d+ s)?|\d+(\.0)? s) left$/;
    for (const page of [owner, there]) {
      await page
        .getByText(/The server of the provisioner built-in-0@\S+ is stopping\. It waits for this job/)
        .waitFor();
      await page.getByText(left).waitFor();
      await page
        .getByRole("log")
        .getByText(/is stopping|stops/)
        .first()
        .waitFor();
    }
    const row = operator
      .getByRole("region", { name: "Servers that are stopping" })
      .getByRole("row")
      .filter({ hasText: "ada/waited: start" });
    await row.getByText("built-in-0@").waitFor();
    const first = await row.getByText(left).innerText();
    await operator.waitForFunction(
      (was) => ![...document.querySelectorAll("time")].some((t) => t.textContent === was),
      first,
    );
    await operator.getByRole("region", { name: "All servers" }).getByText("stopping", { exact: true }).waitFor();
    await axe(operator, "health while a server stops");
    await operator.setViewportSize({ width: 390, height: 900 });
    await fits(operator, "health while a server stops");
    await row.getByRole("link", { name: "ada/waited: start" }).click();
    await operator.getByText(/is stopping\. It waits for this job/).waitFor();
    await operator.goBack();

    writeFileSync(go, "");
    await row.waitFor({ state: "detached" });
    await status(owner).getByText("Running").waitFor();
    await stopped;
    await there.getByText(outage).first().waitFor();
    await second.start();
    await there.getByText(outage).first().waitFor({ state: "detached" });
    await status(there).getByText("Running").waitFor();
    await linked();
    for (const s of seen) await s.unharmed();
  },
  slow,
);

it(
  "names the provisioner that went with its server, and ends its build at once when told to",
  async () => {
    rmSync(go, { force: true });
    await isHeld(base.place, "orphan");
    const page = (await open(base.place, token)).page;
    const list = (await open(base.place, token)).page;
    const queue = (await open(base.place, token)).page;
    await page.goto("/@ada/orphan/builds/1");
    await list.goto("/workspaces");
    await queue.goto("/provisioners");
    const seen = [page, list, queue].map(watch);
    const offline = /The provisioner built-in-0@\S+ has been offline since \d/;
    await status(page).getByText("Starting").waitFor();
    await second.stop("SIGKILL");
    await page.getByRole("status").getByText(offline).waitFor();
    await page
      .getByText(/It belongs to a server that does not answer/)
      .first()
      .waitFor();
    await page.getByRole("log").getByText(offline).waitFor();
    await list.getByRole("listitem").filter({ hasText: "orphan" }).getByText(offline).waitFor();
    await queue.getByRole("region", { name: "Jobs" }).getByText(offline).waitFor();
    await axe(page, "a build whose provisioner is offline");
    await page.getByRole("button", { name: "Cancel the build of orphan" }).click();
    await page
      .getByText(/The job was canceled\. .* has been offline since/)
      .first()
      .waitFor();
    await status(page).getByText("canceled", { exact: true }).waitFor();
    await list.getByRole("listitem").filter({ hasText: "orphan" }).getByText("canceled", { exact: true }).waitFor();

    await second.start();
    await linked();
    writeFileSync(go, "");
    await page.getByRole("button", { name: "Start orphan" }).click();
    await status(page).getByText("Running").waitFor({ timeout: 60_000 });
    for (const s of seen) await s.unharmed();
  },
  slow,
);

const outage = /Cannot reach the server/;

// killed kills all servers, and returns when these pages say that they are gone.
async function killed(pages: Page[]) {
  await Promise.all([base.stop("SIGKILL"), second.stop("SIGKILL")]);
  for (const page of pages) await page.getByText(outage).first().waitFor();
}

// whole expects that a page shows all lines of the log of a workspace's build, which has ended, and that each was
// stored once.
async function whole(page: Page, name: string) {
  const { id } = (await workspace(name)).latest_build;
  const lines = await api<{ output: string }[]>(base.place, token, "GET", `workspacebuilds/${id}/logs`);
  for (const text of ["): is held", "terraform_data.made: Creation complete"])
    expect(lines.filter((l) => l.output.includes(text)).length, text).toBe(1);
  await page.locator('[data-log="ended"]').getByText(`${lines.length} lines`, { exact: true }).waitFor();
}

it(
  "shows how the builds of an external provisioner ended and go on that outlived all servers",
  async () => {
    for (const file of [go, later]) rmSync(file, { force: true });
    await isHeld(base.place, "ends", "racked");
    await isHeld(base.place, "goes-on", "late");
    const ends = (await open(base.place, token)).page;
    const goesOn = (await open(base.place, token)).page;
    const list = (await open(base.place, token)).page;
    await ends.goto("/@ada/ends/builds/1");
    await goesOn.goto("/@ada/goes-on");
    for (const page of [ends, goesOn]) await page.getByRole("log").getByText("): is held").waitFor();
    await list.goto("/workspaces");
    const row = (name: string) => list.getByRole("listitem").filter({ hasText: name });
    for (const name of ["ends", "goes-on"]) await row(name).getByText("Starting").first().waitFor();
    const pages = [ends, goesOn, list];
    const seen = pages.map(watch);
    await killed(pages);
    for (const page of [ends, goesOn]) {
      await page.getByText("reconnecting…", { exact: true }).waitFor();
      await status(page).getByText("Starting").waitFor();
    }
    const ended = rack.said('msg="job ended"');
    writeFileSync(go, "");
    await until("the build has ended", () => rack.said('msg="job ended"') > ended);

    await base.start();
    await second.start();
    for (const page of pages) await page.getByText(outage).first().waitFor({ state: "detached" });
    await status(ends).getByText("Running").waitFor({ timeout: 60_000 });
    await row("ends").getByText("Running").first().waitFor();
    await whole(ends, "ends");
    await status(goesOn).getByText("Starting").waitFor();
    await goesOn.getByText("live", { exact: true }).waitFor();
    writeFileSync(later, "");
    await status(goesOn).getByText("Running").waitFor({ timeout: 60_000 });
    await row("goes-on").getByText("Running").first().waitFor();
    await goesOn.getByRole("button", { name: "Show log" }).click();
    await whole(goesOn, "goes-on");
    for (const s of seen) await s.unharmed();
  },
  slow,
);

it(
  "says why an external provisioner stopped a build while all servers were away for too long",
  async () => {
    // As after the ten minutes that are the default. Daemons hear from their server every five seconds.
    for (const server of [base, second]) server.extra["CODER_PROVISIONER_GRACE"] = "15s";
    try {
      await base.stop();
      const sessions = rack.said('msg="session with the server opened"');
      await base.start();
      await until("rack is back", () => rack.said('msg="session with the server opened"') > sessions);
      await second.stop();
      await second.start();
      rmSync(later, { force: true });
      await isHeld(base.place, "long", "late");
      const page = (await open(base.place, token)).page;
      const list = (await open(base.place, token)).page;
      await page.goto("/@ada/long/builds/1");
      await page.getByRole("log").getByText("): is held").waitFor();
      await list.goto("/workspaces");
      const row = list.getByRole("listitem").filter({ hasText: "long" });
      await row.getByText("Starting").first().waitFor();
      const seen = [page, list].map(watch);
      const ended = rack.said('msg="job ended"');
      await killed([page, list]);
      await until("rack has stopped the build", () => rack.said('msg="job ended"') > ended);

      await base.start();
      await second.start();
      await status(page).getByText("Failed").waitFor({ timeout: 60_000 });
      await page
        .getByText(
          /The server was away for longer than 15s, so the provisioner stopped the job\. The state .* is kept\./,
        )
        .first()
        .waitFor();
      await row.getByText("Failed").first().waitFor();
      await whole(page, "long");
      await axe(page, "a build that its provisioner stopped");
      writeFileSync(later, "");
      await page.getByRole("button", { name: "Start long" }).click();
      await status(page).getByText("Running").waitFor({ timeout: 60_000 });
      for (const s of seen) await s.unharmed();
    } finally {
      for (const server of [base, second]) delete server.extra["CODER_PROVISIONER_GRACE"];
    }
  },
  slow,
);

const noDatabase = /The database (is not reachable|cannot accept connections now)/;

it(
  "says that the database is away, and goes on when it is back",
  async () => {
    const list = (await open(second.place, token, elsewhere)).page;
    const health = (await open(second.place, token, elsewhere)).page;
    const terminal = (await open(second.place, token, elsewhere)).page;
    await list.goto("/workspaces");
    await list.getByRole("link", { name: "stays", exact: true }).waitFor();
    await health.goto("/health");
    await health.getByRole("heading", { name: "All servers" }).waitFor();
    await terminal.goto("/@ada/stays/terminal");
    await types(terminal, "echo before-$((6*7))\n");
    await shows(terminal, "before-42");
    const seen = [list, health, terminal].map(watch);
    await base.stop(); // with PostgreSQL

    // Pages that are open.
    await list.getByRole("button", { name: "Stop stays" }).click();
    await list.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
    await list.getByText(noDatabase).first().waitFor();
    await list.keyboard.press("Escape");
    await list.getByRole("link", { name: "Templates", exact: true }).click();
    await list.getByRole("alert").getByText(noDatabase).first().waitFor();
    await health.getByText("database_unreachable").first().waitFor();
    await types(terminal, "echo during-$((6*7))\n");
    await shows(terminal, "during-42");
    await list.getByRole("button", { name: "Account of ada" }).click();
    await list.getByRole("menuitem", { name: "Sign out" }).click();
    await list.getByText(/You are still signed in\. The database/).waitFor();
    const note = list.getByRole("button", { name: "Dismiss" });
    while ((await note.count()) > 0) await note.first().click();

    // Pages that are opened now.
    const fresh = (await open(second.place, token, elsewhere)).page;
    await fresh.goto("/@ada/stays");
    await fresh.getByRole("alert").getByText(noDatabase).first().waitFor();
    const report = (await open(second.place, token, elsewhere)).page;
    await report.goto("/health");
    await report.getByText("database_unreachable").first().waitFor();
    await axe(report, "health without a database");
    const visitor = (await open(second.place, undefined, elsewhere)).page;
    await visitor.goto("/login");
    await visitor.getByText(noDatabase).first().waitFor();
    for (const page of [list, fresh, report])
      expect(await page.getByText(/Cannot reach the server|was updated|Sign in to /).count()).toBe(0);
    for (const page of [fresh, report, visitor]) seen.push(watch(page));

    await base.start();
    for (const page of [list, health, fresh, report])
      await page.getByText(noDatabase).first().waitFor({ state: "detached" });
    await list.getByRole("link", { name: "held", exact: true }).waitFor();
    await status(fresh).getByText("Running").waitFor();
    await report.getByRole("heading", { name: "All servers" }).waitFor();
    await health.getByText("database_unreachable").first().waitFor({ state: "detached" });
    await visitor.getByLabel("Password").waitFor();
    await visitor.getByText(noDatabase).first().waitFor({ state: "detached" });
    await types(terminal, "echo after-$((6*7))\n");
    await shows(terminal, "after-42");
    await shows(terminal, "before-42");
    await linked();
    for (const s of seen.slice(0, -1)) await s.unharmed();
  },
  slow,
);

it(
  "says why a terminal waits at a server without links, and goes on once there are links",
  async () => {
    // The agent is connected to the second server.
    const { page } = await open(base.place, token);
    const health = (await open(base.place, token)).page;
    await health.goto("/health");
    for (const road of roads) road.lead([]);
    await health
      .getByText(/server_(link_missing|unreachable)/)
      .first()
      .waitFor({ timeout: 60_000 });
    await page.goto("/@ada/stays/terminal");
    await page
      .getByText(/cannot reach/)
      .first()
      .waitFor({ timeout: 60_000 });
    roads[0]!.lead([base.place.port]);
    roads[1]!.lead([second.place.port]);
    await types(page, "echo linked-$((6*7))\n");
    await shows(page, "linked-42");
    await linked();
    expect(await page.getByText(/was updated|Sign in to /).count()).toBe(0);
  },
  slow,
);

it(
  "says why a terminal waits while links between servers are frozen, and goes on once they are not",
  async () => {
    const before = (await open(base.place, token)).page;
    await before.goto("/@ada/stays/terminal");
    await types(before, "echo before-$((6*7))\n");
    await shows(before, "before-42");
    const seen = watch(before);
    for (const road of roads) road.freeze();
    try {
      await types(before, "echo meanwhile-$((6*7))\n"); // packets take another way
      await shows(before, "meanwhile-42");
      const { page } = await open(base.place, token);
      await page.goto("/@ada/stays/terminal");
      // Servers take a link for alive for a while, and a terminal that got through in this time is well.
      await page
        .getByText(/cannot reach/)
        .or(page.getByText("Connected", { exact: true }))
        .first()
        .waitFor({ timeout: 90_000 });
      for (const road of roads) road.thaw();
      await types(page, "echo thawed-$((6*7))\n");
      await shows(page, "thawed-42");
      await linked();
      expect(await page.getByText(/was updated|Sign in to /).count()).toBe(0);
    } finally {
      for (const road of roads) road.thaw();
    }
    await seen.unharmed();
  },
  slow,
);

it(
  "shows servers and provisioners of two versions, and says how they differ",
  async () => {
    // The same program, but for its version.
    const program = join(second.place.dir, "coder-next");
    const bytes = readFileSync(Server.program);
    for (let at = bytes.indexOf(version); at >= 0; at = bytes.indexOf(version, at + 1)) bytes.write(next, at);
    writeFileSync(program, bytes, { mode: 0o755 });
    const balancer = await Balancer.start([second.place.port, base.place.port]);
    try {
      const front = { ...base.place, url: balancer.url };
      const { page } = await open(front, token, elsewhere);
      await page.goto("/@ada/stays");
      await status(page).getByText("Running").waitFor();
      const seen = watch(page);
      await second.stop();
      second.program = program;
      await second.start();
      await linked();
      await run(base.place, ["stop", "stays", "-y"]); // by the other version's provisioner
      await status(page).getByText("Stopped").waitFor();
      for (const [link, heading] of [
        ["Templates", "Templates"],
        ["Provisioners", "Provisioners"],
        ["Workspaces", "Workspaces"],
      ] as const) {
        await page.getByRole("link", { name: link, exact: true }).click();
        await page.getByRole("heading", { level: 1, name: heading }).waitFor();
      }
      await seen.unharmed();
      const operator = (await open(base.place, token)).page;
      await operator.goto("/health");
      const servers = operator.getByRole("region", { name: "All servers" });
      await servers.getByText(next).first().waitFor();
      await servers.getByText(version).first().waitFor();
      await operator.getByText("provisioners_version").first().waitFor();
      await operator
        .getByText(/built-in-0@.*, a later version\)/)
        .first()
        .waitFor();
      await operator
        .getByText(/Upgrade this server to/)
        .first()
        .waitFor();
    } finally {
      balancer.close();
    }
  },
  slow,
);
