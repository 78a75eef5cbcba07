import { beforeAll, expect, inject, it } from "vitest";
import type { QuietHours, Template, Workspace } from "../src/api/types";
import { axe, fits, open, picture, withBrowser } from "./browser";
import { api, run } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");
const workspace = () => api<Workspace>(place, token, "GET", "users/me/workspace/ruled");

beforeAll(async () => {
  await run(place, ["templates", "push", "ruled", "-d", `${place.dir}/process`, "-y"]);
});

it("sets what a template asks of its workspaces", async () => {
  const { page } = await open(place, token);
  await page.goto("/templates/ruled/settings");
  await page.getByLabel("Autostop after (hours)").fill("8");
  await page.getByLabel("Maximum lifetime (hours)").fill("4");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("must not be less than default_ttl_ms", { exact: false }).waitFor();
  await page.getByLabel("Maximum lifetime (hours)").fill("24");
  await page.getByLabel("Dormant after (days without use)").fill("30");
  await page.getByLabel("Count all workspaces as used now").check();
  await page.getByLabel("Delete after (days dormant)").fill("60");
  await page.getByRole("group", { name: "Allow autostart on" }).getByText("sun").click();
  await page.getByRole("group", { name: "Require a stop on" }).getByText("sat").click();
  await page.getByLabel("Every how many weeks").fill("2");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved").waitFor();
  await axe(page, "a template's schedule");
  await picture(page, "template-schedule");
  expect(await api<Template>(place, token, "GET", "organizations/default/templates/ruled")).toMatchObject({
    default_ttl_ms: 8 * 3_600_000,
    max_ttl_ms: 24 * 3_600_000,
    time_til_dormant_ms: 30 * 86_400_000,
    time_til_dormant_autodelete_ms: 60 * 86_400_000,
    autostart_requirement: { days_of_week: ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday"] },
    autostop_requirement: { days_of_week: ["saturday"], weeks: 2 },
  });
  await page.setViewportSize({ width: 390, height: 844 });
  await fits(page, "a narrow page");
  await picture(page, "template-schedule-phone");
});

it("explains when a workspace stops, and wakes a dormant one", async () => {
  await run(place, ["create", "ruled", "-t", "ruled", "-y"]);
  const { page } = await open(place, token);
  await page.goto("/@ada/ruled");
  await page.getByText(/Stops .* because the template's default is 8 h\./).waitFor();
  await run(place, ["stop", "ruled", "-y"]);
  await api(place, token, "PUT", `workspaces/${(await workspace()).id}/dormant`, { dormant: true });
  await page.getByText(/^Dormant since/).waitFor();
  await page.getByText(/It stays stopped until you wake it\. It will be deleted on .* \(in 60 d\) unless/).waitFor();
  const heading = page.getByRole("heading", { level: 1 });
  await heading.getByText("Dormant").waitFor();
  await page.getByText(/^Stops /).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "More for ruled" }).click();
  await page.getByRole("menuitem", { name: "Wake" }).waitFor();
  expect(await page.getByRole("menuitem", { name: "Restart…" }).isDisabled()).toBe(true);
  await page.keyboard.press("Escape");
  await axe(page, "a dormant workspace");
  await picture(page, "dormant");
  await page.setViewportSize({ width: 390, height: 844 });
  await fits(page, "a narrow page");
  await picture(page, "dormant-phone");
  await page.goto("/workspaces?q=owner:me");
  await page.getByRole("heading", { name: "Workspaces" }).waitFor();
  await page.getByLabel("Status", { exact: true }).selectOption({ label: "Dormant" });
  await page.getByText("deleted in 60 d unless you wake it").waitFor();
  await page.getByRole("button", { name: "Wake ruled" }).click();
  await expect.poll(async () => (await workspace()).dormant_at).toBeNull();
});

it("sets quiet hours", async () => {
  const { page } = await open(place, token);
  await page.goto("/account");
  await page.getByLabel("Begin at").fill("22:30");
  await page.getByLabel("Time zone").selectOption("Europe/Berlin");
  await page
    .locator("section", { has: page.getByRole("heading", { name: "Quiet hours" }) })
    .getByRole("button", { name: "Save" })
    .click();
  await page.getByRole("button", { name: "Use the default" }).waitFor();
  await axe(page, "quiet hours");
  await picture(page, "quiet-hours");
  expect(await api<QuietHours>(place, token, "GET", "users/me/quiet-hours")).toMatchObject({
    raw_schedule: "CRON_TZ=Europe/Berlin 30 22 * * *",
    user_set: true,
  });
  await page.getByRole("button", { name: "Use the default" }).click();
  await page.getByText("These are the deployment's", { exact: false }).waitFor();
});
