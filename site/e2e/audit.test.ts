import { expect, inject, it } from "vitest";
import { axe, fits, open, picture, withBrowser } from "./browser";
import { api } from "./server";

withBrowser();
const place = inject("place");
const token = inject("token");

it("shows who did what, and who reached which workspace", async () => {
  const [template] = await api<{ id: string }[]>(place, token, "GET", "templates?q=exact_name:process");
  await api(place, token, "PATCH", `templates/${template!.id}`, { description: "Runs on the server" });
  const { page } = await open(place, token);
  await page.goto("/audit?q=action%3Awrite+resource_type%3Atemplate");
  const row = page.getByRole("row").filter({ hasText: "ada changed template process" }).first();
  await row.getByRole("button", { name: /Details of/ }).click();
  await row.getByRole("table", { name: "Difference" }).getByText("Runs on the server").waitFor();
  await axe(page, "audit log");
  await picture(page, "audit");
  await page.getByLabel("Search the audit log").fill("username:ghost");
  await page.getByRole("button", { name: "Search" }).click();
  await page.getByText("No entries found").waitFor();
  await page.getByLabel("Search the audit log").fill("color:red");
  await page.getByRole("button", { name: "Search" }).click();
  await page.getByText("does not support color").waitFor();
  await page.goto("/connectionlog");
  await page.getByRole("heading", { name: "Connection log" }).waitFor();
  await axe(page, "connection log");

  for (const look of [{ dark: true }, { width: 390 }]) {
    const other = await open(place, token, look);
    for (const path of ["/audit", "/connectionlog"]) {
      await other.page.goto(path);
      await other.page.getByRole("heading", { level: 1 }).waitFor();
      await other.page.getByText(/Loading/).waitFor({ state: "detached" });
      await axe(other.page, `${path} ${JSON.stringify(look)}`);
      await fits(other.page, `${path} ${JSON.stringify(look)}`);
    }
  }
  expect((await fetch(`${place.url}/api/v2/audit`)).status).toBe(401);
});
