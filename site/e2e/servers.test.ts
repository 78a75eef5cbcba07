// Two servers on one database, as the Health and Mesh pages show them.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { axe, fits, open, picture, withBrowser } from "./browser";
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
