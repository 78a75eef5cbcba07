// How the deployment presents itself, to users and to visitors.
import { expect, inject, it } from "vitest";
import { api } from "./server";
import { admin, axe, fits, open, picture, withBrowser } from "./browser";

withBrowser();
const place = inject("place");
const token = inject("token");

it("shows the deployment's name, logo and announcements", async () => {
  const { page } = await open(place, token);
  await page.goto("/workspaces");
  await (await admin(page)).getByRole("menuitem", { name: "Appearance" }).click();
  await page.getByLabel("Application name").fill("Acme");
  await page.getByLabel("Logo").fill("https://elsewhere.example.com/logo.png");
  await page.getByRole("button", { name: "Add banner" }).click();
  await page.getByLabel("Message").fill("Maintenance on Friday at 22:00");
  await page.getByLabel("Color").fill("#ffd166");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("images of other hosts are blocked", { exact: false }).last().waitFor();
  await page.getByLabel("Logo").fill("/icon/docker.svg");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved").waitFor();
  const announcements = page.getByRole("region", { name: "Announcement" });
  // At the top of the page, and in the form as a preview.
  const shown = async (text: string) => expect.poll(() => announcements.filter({ hasText: text }).count()).toBe(2);
  await shown("Maintenance on Friday at 22:00");
  await axe(page, "appearance");
  await picture(page, "appearance");

  const message = '<img src=x onerror="document.title=1"> Maintenance at 22:00';
  await page.getByLabel("Application name").fill("Acme <b>");
  await page.getByLabel("Message").fill(message);
  await page.getByRole("button", { name: "Save" }).click();
  await shown(message);

  for (const look of [{}, { dark: true }, { width: 390 }]) {
    for (const who of [token, undefined]) {
      const other = await open(place, who, look);
      await other.page.goto("/workspaces");
      // Text is shown as it was written.
      await other.page.getByRole("region", { name: "Announcement" }).getByText(message, { exact: true }).waitFor();
      await other.page.getByText("Acme <b>").first().waitFor();
      expect(await other.page.title()).not.toBe("1");
      await other.page.locator('img[src="/icon/docker.svg"]').first().waitFor();
      await axe(other.page, `announcement ${who ? "inside" : "outside"} ${JSON.stringify(look)}`);
      await fits(other.page, `announcement ${who ? "inside" : "outside"} ${JSON.stringify(look)}`);
    }
  }
  await api(place, token, "PUT", "appearance", {});
  await page.goto("/login");
  await page.getByText("codermesh").first().waitFor();
  expect(await page.getByRole("region", { name: "Announcement" }).count()).toBe(0);
});
