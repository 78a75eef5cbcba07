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
  const row = page.getByRole("row").filter({ hasText: "ada changed description of template process" }).first();
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

  await page.getByLabel("Way").selectOption("Terminals");
  await page.getByText("No connections found").or(page.getByText("opened a terminal in").first()).waitFor();
  expect(new URL(page.url()).searchParams.get("q")).toBe("type:reconnecting_pty");

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

it("filters the audit log, names what changes mention, and keeps searches", async () => {
  const user = await api<{ id: string }>(place, token, "POST", "users", {
    username: "amy",
    email: "amy@example.com",
    login_type: "none",
  });
  const group = await api<{ id: string }>(place, token, "POST", "organizations/default/groups", { name: "amys" });
  await api(place, token, "PATCH", `groups/${group.id}`, { add_users: [user.id] });

  const { page } = await open(place, token);
  const search = page.getByLabel("Search the audit log");
  await page.goto("/audit");
  await page.getByLabel("Object", { exact: true }).selectOption("Groups");
  await page.getByLabel("Action", { exact: true }).selectOption("Changed");
  const row = page.getByRole("row").filter({ hasText: "ada changed members of group amys" });
  await row.getByRole("button", { name: /Details of/ }).click();
  await row.getByRole("table", { name: "Difference" }).getByText("amy", { exact: true }).waitFor();

  // What no filter shows is a chip, which leaves with a click.
  await row.getByRole("button", { name: "About amys" }).click();
  const chip = page.getByRole("button", { name: /Resource target: amys/ });
  await chip.waitFor();
  await axe(page, "a filtered audit log");

  await page.getByRole("button", { name: "Saved views" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox").fill("Amys group");
  await dialog.getByRole("button", { name: "Save search" }).click();
  await dialog.getByRole("list", { name: "Saved searches" }).getByText("Amys group").waitFor();
  await axe(page, "saved searches");
  await dialog.getByRole("button", { name: "Done" }).click();
  await chip.click();
  await chip.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Clear filters" }).click();
  await expect.poll(() => search.inputValue()).toBe("");

  // Searches belong to their page, and follow to other browsers.
  const other = await open(place, token);
  await other.page.goto("/users");
  await other.page.getByRole("button", { name: "Saved views" }).click();
  await other.page.getByText("Search or filter the list first").waitFor();
  await other.page.goto("/audit");
  await other.page.getByRole("button", { name: "Saved views" }).click();
  await other.page.getByRole("button", { name: "Amys group", exact: true }).click();
  await other.page.getByRole("row").filter({ hasText: "ada changed members of group amys" }).waitFor();
  const applied = other.page.getByLabel("Search the audit log");
  await expect.poll(() => applied.inputValue()).toContain("resource_target:amys");
});
