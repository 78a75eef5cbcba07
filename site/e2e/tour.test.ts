// The page of a workspace as a developer has it, of which the README has pictures.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, inject, it } from "vitest";
import { axe, fits, open, picture, withBrowser } from "./browser";
import { run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

const app = (slug: string, name: string, icon: string, what: string) => `
resource "coder_app" "${slug}" {
  agent_id     = coder_agent.main.id
  slug         = "${slug}"
  display_name = "${name}"
  icon         = "/icon/${icon}.svg"
  ${what}
}
`;

const memory = `resource "coder_agent" "main" {
  metadata {
    key          = "memory"
    display_name = "Memory"
    script       = "free -h | awk 'NR == 2 { print $3 \\" of \\" $2 }'"
    interval     = 10
    timeout      = 1
  }
`;

it("shows a workspace with its apps, in light and dark, on a screen and a phone", async () => {
  const dir = join(place.dir, "go-service");
  mkdirSync(dir);
  writeFileSync(
    join(dir, "main.tf"),
    readFileSync(join(place.dir, "process", "main.tf"), "utf8").replace('resource "coder_agent" "main" {\n', memory) +
      app("preview", "Preview", "go", 'url = "http://localhost:8080"\n  subdomain = true') +
      app("database", "Database", "postgres", 'command = "psql"') +
      app("docs", "Runbook", "github", 'url = "https://example.com/runbook"\n  external = true'),
  );
  await run(place, ["templates", "push", "go-service", "-d", dir, "-y", "-m", "Go 1.26"]);
  await run(place, ["templates", "edit", "go-service", "--display-name", "Go service", "--icon", "/icon/go.svg"]);
  await run(place, ["create", "payments", "-t", "go-service", "-y"]);
  for (const width of [1440, 390])
    for (const dark of [false, true]) {
      const { page } = await open(place, token, { width, dark });
      await page.goto("/@ada/payments");
      await page.getByText("connected", { exact: true }).waitFor();
      await page.getByText(/ of .*Gi/).waitFor();
      // An image is complete once it was loaded, or could not be.
      await page.waitForFunction(() =>
        [...document.querySelectorAll<HTMLImageElement>("main img")].every((i) => i.complete),
      );
      const broken = await page.$$eval("main img", (all) => all.filter((i) => !(i as HTMLImageElement).naturalWidth));
      expect(broken.length).toBe(0);
      await fits(page, `a workspace at ${width} px`);
      await axe(page, "a workspace");
      await picture(page, `workspace${dark ? "-dark" : ""}${width === 390 ? "-phone" : ""}`);
    }
});
