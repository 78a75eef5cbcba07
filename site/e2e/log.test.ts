// Long, colourful and hostile logs.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { axe, open, picture, withBrowser } from "./browser";
import { api, run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

const lines = 100_000;
const script = [
  `printf '%s\\n' "begin $(head -c 1500 /dev/zero | tr '\\0' x) end"`,
  `seq 1 ${lines}`,
  `printf '\\033[31mred\\033[0m plain\\n'`,
  `echo '<img src=x onerror=alert(1)><script>alert(2)</script>'`,
].join("; ");

beforeAll(async () => {
  const dir = join(place.dir, "long");
  mkdirSync(dir, { recursive: true });
  writeFileSync(
    join(dir, "main.tf"),
    `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "terraform_data" "x" {
  count = data.coder_workspace.me.start_count
  provisioner "local-exec" {
    command = <<-EOT
      ${script}
    EOT
  }
}
`,
  );
  await run(place, ["templates", "push", "long", "-d", dir, "-y"]);
  await run(place, ["create", "long", "-t", "long", "-y"]);
});

it(`shows a log of ${lines} lines, and each by its address`, async () => {
  const { page } = await open(place, token);
  const begun = performance.now();
  await page.goto("/@ada/long/builds/1");
  const log = page.getByRole("log");
  await page.locator('[data-log="ended"]').waitFor();
  console.log(`${lines} lines are there after ${Math.round(performance.now() - begun)} ms`);
  await page.getByText(/^100,\d+ lines$/).waitFor();
  // Only what can be seen is in the page.
  expect(await log.locator("a").count()).toBeLessThan(200);
  await axe(page, "a long log");

  // Colours, and markup as text.
  await page.getByLabel("Search the log").fill("red");
  const red = log.locator(".ansi-red", { hasText: "red" });
  await red.waitFor();
  await page.getByLabel("Search the log").fill("onerror");
  await log.getByText("<img src=x onerror=alert(1)><script>alert(2)</script>").first().waitFor();
  expect(await log.locator("img, script").count()).toBe(0);
  await page.getByLabel("Search the log").fill("");

  // A line has an address.
  await page.getByLabel("Search the log").fill("): 54321");
  await log.getByRole("link").first().click();
  const address = page.url();
  expect(address).toMatch(/#L\d+$/);
  const other = await open(place, token);
  await other.page.goto(address);
  await other.page.getByRole("log").getByText("): 54321").waitFor();
  await picture(other.page, "build-log");
});

it("wraps long lines, unless told not to", async () => {
  const { page } = await open(place, token, { width: 390 });
  await page.goto("/@ada/long/builds/1");
  await page.locator('[data-log="ended"]').waitFor();
  const log = page.getByRole("log");
  await page.getByLabel("Search the log").fill("xxx end");
  const line = log.getByText(/begin x+ end$/).first();
  await line.waitFor();
  const overflow = () => log.evaluate((e) => e.scrollWidth - e.clientWidth);
  const height = () => line.evaluate((e) => e.closest<HTMLElement>("[class~=absolute]")!.clientHeight);
  // All of it is there, within the width, and its row is as high as it is.
  expect(await overflow()).toBeLessThanOrEqual(0);
  expect(await line.evaluate((e) => e.getClientRects().length)).toBe((await height()) / 20);
  expect(await height()).toBeGreaterThan(20 * 20);
  await page.getByRole("button", { name: "Wrap long lines" }).click();
  expect(await overflow()).toBeGreaterThan(1000);
  expect(await height()).toBe(20);
  await page.reload();
  await page.getByRole("button", { name: "Wrap long lines", pressed: false }).waitFor();
});

it("continues a build's log where the connection broke", async () => {
  const { page, context } = await open(place, token);
  await page.goto("/@ada/long");
  await run(place, ["stop", "long", "-y"]);
  // The page sees the next build live, and loses its connections in the middle.
  const started = run(place, ["start", "long", "-y"]);
  await page.getByText("Build #3: start").waitFor();
  await page.goto("/@ada/long/builds/3"); // where the log stays open
  await page
    .getByText(/local-exec\): \d+/)
    .first()
    .waitFor();
  await context.setOffline(true);
  await context.setOffline(false);
  await started;
  await page.locator('[data-log="ended"]').waitFor({ timeout: 60_000 });
  await page.getByText(/^100,\d+ lines$/).waitFor();
  // Complete and in order: every line has the number that it has on the server.
  const { latest_build: build } = await api<{ latest_build: { id: string } }>(
    place,
    token,
    "GET",
    "users/me/workspace/long",
  );
  const all = await api<{ output: string }[]>(place, token, "GET", `workspacebuilds/${build.id}/logs`);
  for (const n of [12_345, 50_000, 99_999]) {
    const text = `local-exec): ${n}`;
    const index = all.findIndex((l) => l.output.endsWith(text));
    await page.getByLabel("Search the log").fill(text);
    await page
      .getByRole("log")
      .getByRole("link", { name: `Line ${index + 1}`, exact: true })
      .waitFor();
  }
});
