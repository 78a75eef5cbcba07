import { expect, inject, it } from "vitest";
import { admin, axe, fits, open, picture, withBrowser } from "./browser";
import { api, run } from "./server";
import { password } from "./setup";

withBrowser();
const place = inject("place");
const token = inject("token");

it("creates, promotes, suspends and deletes users", async () => {
  const { page } = await open(place, token);
  await page.goto("/users");
  await page.getByRole("button", { name: "New user" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Username").fill("ada");
  await dialog.getByLabel("Email").fill("bob@example.com");
  await dialog.getByLabel("Password").fill(password);
  await dialog.getByRole("button", { name: "Create user" }).click();
  await dialog.getByRole("alert").waitFor(); // the name is taken
  await axe(page, "new user");
  await dialog.getByLabel("Username").fill("bob");
  await dialog.getByRole("button", { name: "Create user" }).click();
  const row = page.getByRole("row").filter({ hasText: "bob@example.com" });
  await row.getByText("Member").waitFor();
  await axe(page, "users");

  await row.getByRole("button", { name: "More for bob" }).click();
  await page.getByRole("menuitem", { name: "Change roles…" }).click();
  await page.getByLabel(/^Template Admin/).check();
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await row.getByText(/template admin/i).waitFor();

  const { session_token } = (await (
    await fetch(`${place.url}/api/v2/users/login`, {
      method: "POST",
      body: JSON.stringify({ email: "bob@example.com", password }),
    })
  ).json()) as { session_token: string };
  const bob = await open(place, session_token);
  await bob.page.goto("/workspaces");
  await bob.page.getByText("You have no workspaces").waitFor();
  const bar = bob.page.getByRole("navigation", { name: "Main" });
  expect(await bar.getByRole("link").count()).toBe(4);
  expect(await (await admin(bob.page)).getByRole("menuitem").allInnerTexts()).toEqual(["Organizations"]);
  await bob.page.keyboard.press("Escape");
  // A template admin sees the shared provisioners; a member is not told that there are none.
  await bob.page.goto("/provisioners");
  await bob.page.getByRole("region", { name: "Provisioners" }).getByText("idle").first().waitFor();
  // Another's workspace does not exist for him.
  await bob.page.goto("/@ada/dev");
  await bob.page.getByText("Workspace not found").waitFor();

  await row.getByRole("button", { name: "More for bob" }).click();
  await page.getByRole("menuitem", { name: "Suspend…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Suspend" }).click();
  await row.getByText("suspended").waitFor();
  await bob.page.goto("/templates");
  await bob.page.waitForURL("**/login?redirect=%2Ftemplates");

  await row.getByRole("button", { name: "More for bob" }).click();
  await page.getByRole("menuitem", { name: "Delete…" }).click();
  await page.getByLabel(/to confirm/).fill("bob");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await row.waitFor({ state: "detached" });
});

it("lets user admins manage all users but owners", async () => {
  const { id } = await api<{ id: string }>(place, token, "POST", "users", {
    username: "una",
    email: "una@example.com",
    password,
    name: "",
  });
  await api(place, token, "PUT", `users/${id}/roles`, { roles: ["user-admin"] });
  const login = await fetch(`${place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email: "una@example.com", password }),
  });
  const { session_token } = (await login.json()) as { session_token: string };
  const { page } = await open(place, session_token);
  await page.goto("/workspaces");
  const menu = await admin(page);
  await menu.getByRole("menuitem", { name: "Users" }).waitFor();
  expect(await menu.getByRole("menuitem", { name: "Health" }).count()).toBe(0);
  await menu.getByRole("menuitem", { name: "Users" }).click();
  await page.getByRole("button", { name: "New user" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Username").fill("dan");
  await dialog.getByLabel("Email").fill("dan@example.com");
  await dialog.getByLabel("Password").fill(password);
  await dialog.getByRole("button", { name: "Create user" }).click();
  await page.getByRole("button", { name: "More for dan" }).click();
  await page.getByRole("menuitem", { name: "Change roles…" }).click();
  await dialog.getByLabel(/^User Admin/).check();
  expect(await dialog.getByLabel(/^Owner/).isDisabled()).toBe(true);
  expect(await dialog.getByLabel(/^Auditor/).isDisabled()).toBe(true); // reads what user admins cannot
  await axe(page, "roles of a user");
  await dialog.getByRole("button", { name: "Save roles" }).click();
  await page.getByRole("row").filter({ hasText: "dan@example.com" }).getByText("User Admin").waitFor();
  await page.getByRole("row").filter({ hasText: "ada@example.com" }).waitFor();
  expect(await page.getByRole("button", { name: "More for ada" }).count()).toBe(0);
});

it("changes an account, its tokens and its SSH key", async () => {
  await api(place, token, "POST", "users", { username: "eve", email: "eve@example.com", password, name: "" });
  const { session_token } = (await (
    await fetch(`${place.url}/api/v2/users/login`, {
      method: "POST",
      body: JSON.stringify({ email: "eve@example.com", password }),
    })
  ).json()) as { session_token: string };
  const { page } = await open(place, session_token);
  await page.goto("/account");
  await page.getByLabel("Full name").fill("<b>Eve</b>");
  await page
    .locator("form")
    .filter({ has: page.getByLabel("Full name") })
    .getByRole("button", { name: "Save" })
    .click();
  await page.getByText("Saved").waitFor();
  await page.getByLabel("Current password").fill("wrong");
  await page.getByLabel("New password").fill(`${password}!`);
  await page.getByRole("button", { name: "Change password" }).click();
  await page.getByRole("alert").first().waitFor();
  await page.getByLabel("Current password").fill(password);
  await page.getByRole("button", { name: "Change password" }).click();
  // A changed password ends sessions, this one perhaps too.
  await page
    .getByText("Changed")
    .or(page.getByRole("button", { name: "Sign in" }))
    .first()
    .waitFor();
  if (await page.getByRole("button", { name: "Sign in" }).isVisible()) {
    await page.getByLabel("Email").fill("eve@example.com");
    await page.getByLabel("Password").fill(`${password}!`);
    await page.getByRole("button", { name: "Sign in" }).click();
  }
  await page.getByRole("button", { name: "New token" }).click();
  await page.getByLabel("Name", { exact: true }).fill("deploy");
  await page.getByRole("button", { name: "Create token" }).click();
  const key = await page.getByRole("dialog").getByRole("textbox", { name: "token" }).inputValue();
  expect(await api(place, key, "GET", "users/me")).toMatchObject({ username: "eve", name: "<b>Eve</b>" });
  await page.getByRole("button", { name: "Done" }).click();
  await page.getByRole("row").filter({ hasText: "deploy" }).waitFor();
  await axe(page, "account");
  await page.getByRole("button", { name: "Delete token deploy" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No tokens").waitFor();
  await expect(api(place, key, "GET", "users/me")).rejects.toThrow("401");

  const line = page.getByLabel("SSH public key", { exact: true });
  const before = await line.inputValue();
  expect(before).toMatch(/^(ssh-ed25519|ecdsa|ssh-rsa) /);
  await page.getByRole("button", { name: "Replace…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Replace" }).click();
  await page.waitForFunction(
    (old) => document.querySelector<HTMLInputElement>('[aria-label="SSH public key"]')?.value !== old,
    before,
  );
});

it("does not tell members of an outage because they cannot see shared provisioners", async () => {
  await api(place, token, "POST", "users", { username: "mel", email: "mel@example.com", password, name: "" });
  const login = await fetch(`${place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email: "mel@example.com", password }),
  });
  const { session_token } = (await login.json()) as { session_token: string };
  const { page } = await open(place, session_token);
  await page.goto("/provisioners");
  await page.getByText("You have no provisioners of your own").waitFor();
  expect(await page.getByText("No provisioner is online").count()).toBe(0);
});

it("fits a phone", async () => {
  const { page } = await open(place, token, { width: 390, dark: true });
  for (const path of [
    "/users",
    "/account",
    "/provisioners",
    "/health",
    "/mesh",
    "/templates/new",
    "/templates/process",
    "/templates/process/workspace",
    "/templates/process/settings",
  ]) {
    await page.goto(path);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page
      .getByText(/^Loading/)
      .first()
      .waitFor({ state: "detached" });
    await fits(page, path);
    await axe(page, `${path} on a dark phone`);
  }
  await picture(page, "template-settings-phone");
});

it("sorts users and templates", async () => {
  for (const username of ["sort-zoe", "sort-abe"])
    await api(place, token, "POST", "users", { username, email: `${username}@example.com`, password, name: "" });
  const { page } = await open(place, token);
  await page.goto("/users");
  await page.getByLabel("Search users").fill("sort-");
  const rows = page.getByRole("row").filter({ hasText: "@example.com" });
  const order = () => rows.allInnerTexts().then((all) => all.map((text) => /sort-\w+/.exec(text)?.[0]));
  await expect.poll(order).toEqual(["sort-abe", "sort-zoe"]);
  const header = page.getByRole("columnheader", { name: "Created" });
  await api(place, token, "POST", "users", {
    username: "sort-mia",
    email: "sort-mia@example.com",
    password,
    name: "",
  });
  await header.getByRole("button").click();
  await page.waitForURL("**/users?search=sort-&sort=created");
  expect(await header.getAttribute("aria-sort")).toBe("other");
  await expect.poll(order).toEqual(["sort-mia", "sort-abe", "sort-zoe"]);
  await axe(page, "users, sorted");
  await page.goto("/users?sort=constructor");
  await page.getByLabel("Search users").fill("sort-");
  await expect.poll(order).toEqual(["sort-abe", "sort-mia", "sort-zoe"]);

  // The server sorts templates: each choice asks it.
  await run(place, ["templates", "push", "sorted", "-d", `${place.dir}/process`, "-y"]);
  await page.goto("/templates");
  const names = () => page.getByRole("list", { name: "Templates" }).getByRole("link").allInnerTexts();
  await page.getByRole("combobox", { name: "Sort" }).selectOption("Last updated");
  await expect.poll(async () => (await names())[0]).toBe("sorted");
  await page.getByRole("combobox", { name: "Sort" }).selectOption("Name");
  await expect.poll(async () => (await names())[0]).not.toBe("sorted");
  await run(place, ["templates", "delete", "sorted", "-y"]);
});
