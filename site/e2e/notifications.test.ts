import { expect, inject, it } from "vitest";
import type { ListInboxNotificationsResponse, NotificationPreference } from "../src/api/types";
import { axe, fits, open, withBrowser } from "./browser";
import { api, until } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");
const inbox = () => api<ListInboxNotificationsResponse>(place, token, "GET", "notifications/inbox");
const custom = (title: string, message: string) =>
  api(place, token, "POST", "notifications/custom", { content: { title, message } });

it("shows new notifications at once, and marks them as read", async () => {
  await api(place, token, "PUT", "notifications/inbox/mark-all-as-read");
  const { page } = await open(place, token);
  await page.goto("/workspaces");
  await page.getByRole("button", { name: "Notifications", exact: true }).waitFor();
  await custom("The build is done", "All <img src=x onerror=alert(1)> tests *passed*.");
  const bell = page.getByRole("button", { name: "Notifications, 1 unread" });
  await bell.click();
  await axe(page, "the bell's menu");
  await page.getByRole("menuitem", { name: /The build is done/ }).click();
  await page.waitForURL(/\/notifications#/);
  const row = page.getByRole("listitem").filter({ hasText: "The build is done" });
  await row.getByText("All <img src=x onerror=alert(1)> tests *passed*.").waitFor();
  await page.getByRole("button", { name: "Notifications", exact: true }).waitFor();
  expect((await inbox()).unread_count).toBe(0);
  await row.getByRole("button", { name: /Mark as unread/ }).click();
  await bell.waitFor();

  // Another window of the same user follows.
  const other = await open(place, token, { width: 390, dark: true });
  await other.page.goto("/notifications");
  await other.page.getByRole("button", { name: "Mark all as read" }).click();
  await page.getByRole("button", { name: "Notifications", exact: true }).waitFor();
  await other.page.getByRole("button", { name: "Mark as unread: The build is done" }).waitFor();
  for (const [i, p] of [page, other.page].entries()) {
    await axe(p, `notifications ${i}`);
    await fits(p, `notifications ${i}`);
  }
});

it("lets users turn events off", async () => {
  const { page } = await open(place, token);
  await page.goto("/account#notifications");
  const box = page.getByLabel("Workspace Stops Soon");
  await box.click();
  const off = () => api<NotificationPreference[]>(place, token, "GET", "users/me/notifications/preferences");
  await until("the event is off", async () => (await off()).some((p) => p.disabled));
  await page.reload();
  expect(await box.isChecked()).toBe(false);
  await box.click();
  await until("the event is on", async () => (await off()).every((p) => !p.disabled));
  await axe(page, "preferences");
  const narrow = await open(place, token, { width: 390, dark: true });
  await narrow.page.goto("/account");
  await narrow.page.getByLabel("Workspace Stops Soon").waitFor();
  await fits(narrow.page, "narrow preferences");
});

it("lets owners pause and test deliveries", async () => {
  const { page } = await open(place, token);
  await page.goto("/notifications");
  await page.getByRole("link", { name: "Deployment" }).click();
  await page.getByText("Email and webhooks are not set up: users see notifications only here.").waitFor();
  await page.getByRole("button", { name: "Pause deliveries" }).click();
  await page.getByText("Deliveries are paused.").waitFor();
  await page.getByRole("button", { name: "Send me a test" }).click();
  await page.getByText("Notifications are paused.").waitFor();
  await page.getByRole("button", { name: "Resume deliveries" }).click();
  await page.getByRole("button", { name: "Send me a test" }).click();
  await page.getByText("A test is on its way to you.").waitFor();
  await page.getByRole("button", { name: /Notifications, \d+ unread/ }).waitFor();
  await axe(page, "notifications of the deployment");
  for (const look of [{ dark: true }, { width: 390 }]) {
    const other = await open(place, token, look);
    await other.page.goto("/deployment/notifications");
    await other.page.getByText("Workspace Stops Soon").waitFor();
    await axe(other.page, `notifications of the deployment ${JSON.stringify(look)}`);
    await fits(other.page, `notifications of the deployment ${JSON.stringify(look)}`);
  }
});
