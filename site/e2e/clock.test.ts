// What a person at the dashboard sees while the database's clock differs from the server's by half a minute.
import { afterAll, beforeAll, expect, it } from "vitest";
import { axe, open, withBrowser } from "./browser";
import { Postgres } from "./postgres";
import { run, Server } from "./server";
import { pushProcess, signUp } from "./setup";

withBrowser();
let server: Server;
let database: Postgres;
let token: string;

beforeAll(async () => {
  database = await Postgres.make();
  // Functions of these names in a schema that comes first replace the database's clock.
  for (const clock of ["now", "clock_timestamp", "statement_timestamp", "transaction_timestamp"])
    database.sql(
      `CREATE FUNCTION public.${clock}() RETURNS timestamptz STABLE LANGUAGE sql
        AS $$ SELECT pg_catalog.${clock}() + interval '30 seconds' $$`,
    );
  database.sql("ALTER DATABASE postgres SET search_path = public, pg_catalog");
  server = await Server.make();
  server.extra = { CODER_PG_CONNECTION_URL: Postgres.urlOf(database), CODER_PROVISIONER_DAEMONS: "1" };
  await server.start();
  token = await signUp(server);
  await pushProcess(server.place);
});
afterAll(async () => {
  await server?.cleanup();
  await database?.cleanup();
});

it("warns of the database's clock, and shows sensible times", async () => {
  const { page } = await open(server.place, token);
  await page.goto("/health");
  await page.getByText("server_clock").first().waitFor();
  await page
    .getByText(/The clock of server \S+ differs from the database's by (29|3\d)s\./)
    .first()
    .waitFor();
  await page
    .getByText(/Synchronize the clocks of the machine and the database/)
    .first()
    .waitFor();
  await axe(page, "health with a clock that is ahead");

  await run(server.place, ["create", "early", "-t", "process", "-y"]);
  for (const path of [
    "/workspaces",
    "/@ada/early",
    "/@ada/early/builds/1",
    "/templates",
    "/templates/process",
    "/provisioners",
    "/health",
    "/audit",
    "/users",
    "/account",
  ]) {
    await page.goto(path);
    await page.locator("time").first().waitFor();
    const text = await page.locator("main").innerText();
    expect(text, path).not.toMatch(/in a moment|\bin \d+ (s|seconds|min)\b|[-−]\d+(\.\d+)? (ms|s|min)\b/);
  }
  await page.goto("/@ada/early");
  await page.getByRole("heading", { level: 1 }).getByText("Running").waitFor();
}, 300_000);
