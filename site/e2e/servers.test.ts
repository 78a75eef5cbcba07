// Two servers on one database, as the Health and Mesh pages show them.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { Balancer } from "./balancer";
import { axe, fits, open, picture, shows, types, withBrowser } from "./browser";
import { api, run, Server, until } from "./server";

withBrowser();
const first = inject("place");
const token = inject("token");
let second: Server;

interface Report {
  sections: { name: string; severity: string }[];
  servers: { id: string; reporter: boolean; links: { connected: boolean; relay_connected: boolean }[] }[];
}
const report = () => api<Report>(first, token, "GET", "debug/health?force=true");

beforeAll(async () => {
  second = await Server.make();
  const { dir, url } = second.place;
  mkdirSync(join(dir, "home-admin"), { recursive: true });
  second.extra = {
    CODER_PG_CONNECTION_URL: (await run(first, ["server", "postgres-builtin-url"])).trim(),
    CODER_STATE_ENCRYPTION_KEY_FILE: join(first.dir, "config-admin", "state-encryption.key"),
    CODER_REPLICA_URL: url,
    CODER_PROVISIONER_DAEMONS: "0",
  };
  await second.start();
  await until("the servers are linked", async () => {
    const { servers } = await report();
    return (
      servers.length === 2 &&
      servers.every((s) => s.links.length === 1 && s.links.every((l) => l.connected && l.relay_connected))
    );
  });
});

afterAll(() => second?.cleanup());

it("shows both servers and their links on the health page", async () => {
  const { page } = await open(first, token);
  await page.goto("/health");
  const servers = page.getByRole("region", { name: "All servers" });
  await servers.getByText(second.place.url.replace("http://", ""), { exact: true }).waitFor();
  await servers.getByText("this report").waitFor();
  expect(await servers.getByRole("row").count()).toBe(3);
  expect(await servers.getByText("ok", { exact: true }).count()).toBe(2);
  const links = page.getByRole("region", { name: "Links between servers" });
  expect(await links.getByRole("row").count()).toBe(3);
  expect(await links.getByText("up", { exact: true }).count()).toBe(4);
  await axe(page, "health of two servers");
  await picture(page, "servers");
});

it("names the server of each peer on the mesh page", async () => {
  const { page } = await open(first, token);
  await page.goto("/mesh");
  const own = (await report()).servers.find((s) => s.reporter)!.id.slice(0, 8);
  await page.getByText(`paths and latency as seen from server ${own}`).waitFor();
  const peers = page.getByRole("region", { name: "Peers" });
  await peers.getByRole("row").filter({ hasText: "built-in-0@" }).getByText(own).waitFor();
  await page.getByRole("region", { name: "Links between servers" }).getByText("up", { exact: true }).waitFor();
  await axe(page, "mesh of two servers");
});

it("is usable at 390 px, in the dark", async () => {
  const { page } = await open(first, token, { width: 390, dark: true });
  for (const path of ["/health", "/mesh"]) {
    await page.goto(path);
    await page
      .getByRole("region", { name: "Links between servers" })
      .getByText("up", { exact: true })
      .first()
      .waitFor();
    await fits(page, path);
    await axe(page, `${path} with two servers at 390 px`);
  }
});

const outage = /Cannot reach the server/;

const slow = 300_000; // ms, for commands on a busy machine
const asked = { expect: /to another host|dynamically imported module/ }; // the shared server's own address

it(
  "goes on at another server when one behind a load balancer dies",
  async () => {
    const balancer = await Balancer.start([second.place.port, first.port]);
    try {
      const front = { ...first, url: balancer.url };
      await run(first, ["create", "kept", "-t", "process", "-y"]);
      await run(first, ["create", "seen", "-t", "process", "-y"]);
      const workspace = (await open(front, token, asked)).page;
      const status = workspace.getByRole("heading", { level: 1 });
      await workspace.goto("/@ada/seen");
      await status.getByText("Running").waitFor();
      const terminal = (await open(front, token, asked)).page;
      await terminal.goto("/@ada/kept/terminal");
      await types(terminal, "KEPT=yes; echo before-$((6*7))\n");
      await shows(terminal, "before-42");
      let loads = 0;
      for (const page of [workspace, terminal]) page.on("load", () => loads++);

      const again = terminal.waitForEvent("websocket");
      await second.stop("SIGKILL");
      await again;
      await types(terminal, "echo still-$KEPT\n");
      await shows(terminal, "still-yes");
      await shows(terminal, "before-42");
      await run(first, ["stop", "seen", "-y"]);
      await status.getByText("Stopped").waitFor();
      await workspace.getByText(outage).first().waitFor({ state: "detached" });
      expect(loads).toBe(0);

      // A page whose code was lost with its server opens nevertheless, and does not take this for an update.
      const lost = (await open(front, token, asked)).page;
      await lost.goto("/workspaces");
      await lost.getByRole("link", { name: "kept", exact: true }).waitFor();
      await lost.route(/assets\/templates-.*\.js/, (route) => route.abort("connectionreset"), { times: 1 });
      await lost.getByRole("link", { name: "Templates", exact: true }).click();
      await lost.getByRole("heading", { level: 1, name: "Templates" }).waitFor();
    } finally {
      balancer.close();
    }
    await second.start();
  },
  slow,
);

it(
  "makes a change once when the server dies before its answer arrives",
  async () => {
    const balancer = await Balancer.start([second.place.port, first.port]);
    const kill = () => second.stop("SIGKILL");
    try {
      const front = { ...first, url: balancer.url };
      const { page } = await open(front, token, asked);
      const build = async () =>
        (
          await api<{ latest_build: { id: string; build_number: number } }>(
            first,
            token,
            "GET",
            "users/me/workspace/once",
          )
        ).latest_build;
      await run(first, ["create", "once", "-t", "process", "-y"]);
      await run(first, ["stop", "once", "-y"]);
      const before = (await build()).build_number;
      await page.goto("/@ada/once");
      let lost = balancer.loses(/^POST \/api\/v2\/workspaces\/[^/]+\/builds /, "cut", kill);
      await page.getByRole("button", { name: "Start once" }).click();
      await lost;
      await page.getByRole("heading", { level: 1 }).getByText("Running").waitFor({ timeout: 60_000 });
      expect((await build()).build_number).toBe(before + 1);
      expect(await page.getByRole("alert").count()).toBe(0);

      // What is not repeated may have happened: the page says so.
      await second.start();
      balancer.lead([second.place.port, first.port]); // with new connections
      const at = "organizations/default/templates/process";
      const saved = async () => (await api<{ description: string }>(first, token, "GET", at)).description;
      const old = await saved();
      await page.goto("/templates/process/settings");
      await page.getByLabel("Description").fill("saved once");
      lost = balancer.loses(/^PATCH \/api\/v2\/templates\//, "502", kill);
      await page.getByRole("button", { name: "Save" }).click();
      await lost;
      await page.getByText(/A server behind the proxy may have just ended\. The change may have been made/).waitFor();
      expect(await saved()).toBe("saved once");
      const { audit_logs: log } = await api<{ audit_logs: { diff: { description?: { new: string } } }[] }>(
        first,
        token,
        "GET",
        "audit?limit=50&q=resource_type:template",
      );
      expect(log.filter((l) => l.diff.description?.new === "saved once").length).toBe(1);
      await page.getByLabel("Description").fill(old);
      await page.getByRole("button", { name: "Save" }).click();
      await page.getByText("Saved", { exact: true }).waitFor();
      expect(await saved()).toBe(old);
    } finally {
      balancer.close();
    }
    await second.start();
  },
  slow,
);

it("reports that no server behind a load balancer answers, and goes on when one does", async () => {
  const balancer = await Balancer.start([first.port]);
  try {
    const front = { ...first, url: balancer.url };
    const list = (await open(front, token, asked)).page;
    const other = (await open(front, token, asked)).page;
    for (const page of [list, other]) {
      await page.goto("/workspaces");
      await page.getByRole("heading", { level: 1, name: "Workspaces" }).waitFor();
    }
    let loads = 0;
    list.on("load", () => loads++);
    balancer.lead([]);
    await list.getByText(outage).first().waitFor();
    await other.getByRole("link", { name: "Provisioners", exact: true }).click();
    await other.getByRole("heading", { level: 1, name: "Cannot reach the server" }).waitFor();
    expect(await other.getByText("The server was updated").count()).toBe(0);
    balancer.lead([first.port]);
    await list.getByText(outage).first().waitFor({ state: "detached" });
    await other.getByRole("heading", { level: 1, name: "Provisioners" }).waitFor();
    expect(loads).toBe(0);
  } finally {
    balancer.close();
  }
});

it("says what to do about a server that was killed", async () => {
  await second.stop("SIGKILL");
  await until("the finding", async () =>
    (await report()).sections.some((s) => s.name === "servers" && s.severity !== "ok"),
  );
  const { page } = await open(first, token, { dark: true });
  await page.goto("/health");
  const findings = page.getByRole("list", { name: "Findings about servers" });
  await findings
    .getByText(/server_(unreachable|link_missing|silent)/)
    .first()
    .waitFor();
  await axe(page, "health with a server that was killed");
});
