// A thousand workspaces and more users than one answer has, in a deployment of their own.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { axe, open, picture, withBrowser } from "./browser";
import { api, run, Server } from "./server";
import { pushProcess, signUp } from "./setup";

withBrowser();
const many = 1000;
let server: Server;
let token: string;

// Copies of a workspace that was really built, with all that belongs to it. Each id follows from the original's.
const copies = `
CREATE FUNCTION pg_temp.derived(id uuid, n int) RETURNS uuid LANGUAGE sql AS 'SELECT md5($1::text || $2::text)::uuid';
INSERT INTO provisioner_jobs SELECT (jsonb_populate_record(j, jsonb_build_object('id', pg_temp.derived(j.id, n)))).*
  FROM provisioner_jobs j JOIN workspace_builds b ON b.job_id = j.id, generate_series(1, ${many - 1}) n;
INSERT INTO workspaces SELECT (jsonb_populate_record(w, jsonb_build_object(
    'id', pg_temp.derived(w.id, n), 'name', 'copy-' || n))).*
  FROM workspaces w, generate_series(1, ${many - 1}) n;
INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id)
  SELECT pg_temp.derived(b.id, n), pg_temp.derived(b.workspace_id, n), b.build_number, b.template_version_id,
    pg_temp.derived(b.job_id, n), b.transition, b.initiator_id
  FROM workspace_builds b, generate_series(1, ${many - 1}) n;
INSERT INTO workspace_resources SELECT (jsonb_populate_record(r, jsonb_build_object(
    'id', pg_temp.derived(r.id, n), 'job_id', pg_temp.derived(r.job_id, n)))).*
  FROM workspace_resources r JOIN workspace_builds b ON b.job_id = r.job_id, generate_series(1, ${many - 1}) n
  WHERE b.workspace_id IN (SELECT id FROM workspaces WHERE name = 'original');
INSERT INTO workspace_agents SELECT (jsonb_populate_record(a, jsonb_build_object(
    'id', pg_temp.derived(a.id, n), 'resource_id', pg_temp.derived(a.resource_id, n),
    'workspace_id', pg_temp.derived(a.workspace_id, n), 'token_hash', NULL))).*
  FROM workspace_agents a, generate_series(1, ${many - 1}) n
  WHERE a.workspace_id IN (SELECT id FROM workspaces WHERE name = 'original');
`;

beforeAll(async () => {
  server = await Server.make();
  await server.start();
  token = await signUp(server);
  await pushProcess(server.place);
  await run(server.place, ["create", "original", "-t", "process", "-y"]);
  const versions = "/usr/lib/postgresql"; // where Debian puts it
  const psql =
    (existsSync(versions) ? readdirSync(versions) : [])
      .map((v) => join(versions, v, "bin/psql"))
      .find((p) => existsSync(p)) ?? "psql";
  const database = (await run(server.place, ["server", "postgres-builtin-url"])).trim();
  execFileSync(psql, ["-v", "ON_ERROR_STOP=1", "--single-transaction", "-d", database, "-f", "-"], {
    input: copies,
    stdio: ["pipe", "pipe", "inherit"],
  });
});
afterAll(() => server.cleanup());

it("shows a thousand workspaces", async () => {
  const { page } = await open(server.place, token);
  const times: number[] = [];
  for (let i = 0; i < 5; i++) {
    await page.goto("about:blank");
    await page.goto("/workspaces");
    times.push(
      await page.evaluate(
        () =>
          new Promise<number>((resolve) => {
            const look = () =>
              document.querySelector('ul[aria-label="Workspaces"] li')
                ? resolve(performance.now())
                : requestAnimationFrame(look);
            look();
          }),
      ),
    );
  }
  console.log(`${many} workspaces on screen after ${times.map((t) => Math.round(t)).join(", ")} ms`);
  await page.getByText("1,000 workspaces").waitFor();
  expect(await page.getByRole("listitem").count()).toBeLessThan(100);
  await axe(page, "a thousand workspaces");
  await picture(page, "workspaces-many");
  // The end of the list is reached, and found.
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
  await page.locator(`li[aria-posinset="${many}"]`).waitFor();
  await page.getByLabel("Search workspaces").fill("owner:me name:copy-777");
  await page.getByRole("link", { name: "copy-777", exact: true }).waitFor();
});

it("sorts a thousand workspaces, beyond the first page", async () => {
  const { page } = await open(server.place, token);
  await page.goto("/workspaces");
  await page.getByLabel("Sort").selectOption("Name");
  const at = (n: number, name: string) =>
    page.locator(`li[aria-posinset="${n}"]`).getByRole("link", { name, exact: true }).waitFor();
  await at(1, "copy-1"); // numbers count as numbers
  await at(2, "copy-2");
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
  await at(many, "original");
  await at(many - 1, `copy-${many - 1}`);
  // The address has the order. One that the server does not know is the list's own.
  await page.goto("/workspaces?q=owner:me&sort=created");
  expect(await page.getByLabel("Sort").inputValue()).toBe("created");
  await page.getByText("1,000 workspaces").waitFor();
  await page.goto("/workspaces?q=owner:me&sort=constructor");
  await page.getByText("1,000 workspaces").waitFor();
  expect(await page.getByLabel("Sort").inputValue()).toBe("");
});

it("finds the last of many users, makes a workspace for them and suspends them", async () => {
  const last = "person-110";
  for (let n = 1; n <= 110; n++)
    await api(server.place, token, "POST", "users", {
      username: `person-${n}`,
      email: `person-${n}@example.com`,
      login_type: "none",
    });
  const { page } = await open(server.place, token);
  const row = page.getByRole("row").filter({ hasText: `${last}@example.com` });

  // Newest first, so that the oldest are on the third page.
  await page.goto("/users?sort=created");
  await page.getByText("111 users", { exact: true }).waitFor();
  await row.waitFor();
  await page.getByRole("button", { name: "Next" }).click();
  await page.getByText("51–100").waitFor();
  await page.getByRole("row").filter({ hasText: "person-60@example.com" }).waitFor(); // the rows come after the count
  expect(await row.count()).toBe(0);
  await page.getByRole("button", { name: "Next" }).click();
  await page.getByRole("row").filter({ hasText: "ada@example.com" }).waitFor();
  await axe(page, "the last page of users");

  await page.goto("/templates/process/workspace");
  await page.getByLabel("Name").fill("theirs");
  await page.getByLabel("Owner").fill(last);
  await page.getByRole("button", { name: "Create workspace" }).click();
  await page.waitForURL(`**/@${last}/theirs`);
  await page.getByRole("heading", { name: "theirs" }).waitFor();

  await page.goto("/users");
  await page.getByText("111 users", { exact: true }).waitFor();
  await page.getByLabel("Search users").fill(last);
  await page.getByText("1 user", { exact: true }).waitFor();
  await row.getByRole("button", { name: `More for ${last}` }).click();
  await page.getByRole("menuitem", { name: "Suspend…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Suspend" }).click();
  await row.getByText("suspended").waitFor();

  // No workspace can be made for them now.
  await page.goto("/templates/process/workspace");
  await page.getByLabel("Name").fill("more");
  await page.getByLabel("Owner").fill(last);
  await page.getByText("No active member of the organization has this username.").waitFor();
  expect(await page.getByRole("button", { name: "Create workspace" }).isDisabled()).toBe(true);
  await axe(page, "an unknown owner");
});
