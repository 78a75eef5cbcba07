// Who uses a template, and how its page shows it.
import { expect, inject, it } from "vitest";
import type { TemplateInsightsResponse } from "../src/api/types";
import { axe, fits, open, picture, withBrowser } from "./browser";
import { api, run, until } from "./server";
import { password } from "./setup";

withBrowser();
const place = inject("place");
const token = inject("token");

it("shows those who change a template who uses it", async () => {
  await run(place, ["create", "insight", "-t", "process", "-y"]);
  await run(place, ["ssh", "insight", "--", "true"]);
  const [template] = await api<{ id: string }[]>(place, token, "GET", "templates?q=exact_name:process");
  const hours = (n: number) => new Date(Date.now() + n * 3600_000).toISOString();
  // Other tests have terminals of this template.
  await until("the connection is reported", async () => {
    const path = `insights/templates?template_ids=${template!.id}&start_time=${hours(-24)}&end_time=${hours(1)}`;
    const { report } = await api<TemplateInsightsResponse>(place, token, "GET", path);
    return report?.apps_usage?.some((app) => app.display_name === "SSH" && app.times_used > 0);
  });
  for (const look of [{}, { dark: true }, { width: 390 }]) {
    const { page } = await open(place, token, look);
    await page.goto("/templates/process/insights");
    await page.getByRole("img", { name: "Active users by day: at most 1" }).waitFor();
    await page.getByRole("region", { name: "Activity of users" }).getByText("ada", { exact: true }).waitFor();
    await page.getByRole("region", { name: "Use of apps" }).getByText("SSH", { exact: true }).waitFor();
    await axe(page, `insights ${JSON.stringify(look)}`);
    await fits(page, `insights ${JSON.stringify(look)}`);
    if (Object.keys(look).length === 0) await picture(page, "template-insights");
  }
  await run(place, ["delete", "insight", "-y"]);
  // Whoever only uses templates has no such tab.
  const email = "ines@example.com";
  await api(place, token, "POST", "users", { username: "ines", email, password });
  const login = await fetch(`${place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email, password }),
  });
  const { page } = await open(place, ((await login.json()) as { session_token: string }).session_token);
  await page.goto("/templates/process");
  await page.getByRole("link", { name: "Versions" }).waitFor();
  expect(await page.getByRole("link", { name: "Insights" }).count()).toBe(0);
});
