// A workspace whose memory has passed its threshold: the warning on its page, and the notification.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import type { ListInboxNotificationsResponse } from "../src/api/types";
import { axe, fits, open, picture, withBrowser } from "./browser";
import { api, run, until } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

beforeAll(async () => {
  const dir = join(place.dir, "monitored");
  mkdirSync(dir, { recursive: true });
  const agent = 'resource "coder_agent" "main" {\n';
  const monitors = `  resources_monitoring {
    memory {
      enabled   = true
      threshold = 1
    }
    volume {
      path      = "/"
      enabled   = true
      threshold = 0
    }
    volume {
      path      = "/proc"
      enabled   = true
      threshold = 100
    }
  }
`;
  const process = readFileSync(join(place.dir, "process", "main.tf"), "utf8");
  writeFileSync(join(dir, "main.tf"), process.replace(agent, agent + monitors));
  await run(place, ["templates", "push", "monitored", "-d", dir, "-y"]);
  await run(place, ["create", "monitored", "-t", "monitored", "-y"]);
});

it("warns on the workspace's page, and in the inbox", async () => {
  const { page } = await open(place, token);
  await page.goto("/@ada/monitored");
  const warnings = page.getByRole("list", { name: "Warnings of main" });
  await warnings.getByText(/Memory is low: \d+% were in use .*, and the threshold is 1%/).waitFor({ timeout: 60_000 });
  await warnings.getByText(/Volume \/ is low: \d+% were in use .*, and the threshold is 0%/).waitFor();
  expect(await warnings.getByRole("listitem").count()).toBe(2);
  await axe(page, "a workspace with warnings");
  await fits(page, "a workspace with warnings");
  await picture(page, "monitors");
  await until("notifications of both", async () => {
    const inbox = await api<ListInboxNotificationsResponse>(place, token, "GET", "notifications/inbox");
    const titles = inbox.notifications.map((n) => n.title);
    return ["memory", "disk space"].every((what) => titles.includes(`Workspace "monitored" is low on ${what}`));
  });
});
