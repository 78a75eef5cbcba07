// Organizations, their members, custom roles and groups, as an owner, an admin of one, a member, an auditor and a user
// outside see them.
import { expect, inject, it } from "vitest";
import type { Template, TemplateVersion } from "../src/api/types";
import { admin, axe, fits, open, picture, withBrowser } from "./browser";
import { api, until } from "./server";
import { password } from "./setup";

withBrowser();
const place = inject("place");
const token = inject("token");

// user makes an account and signs in.
async function user(username: string, roles: string[] = []): Promise<string> {
  const email = `${username}@example.com`;
  const { id } = await api<{ id: string }>(place, token, "POST", "users", { username, email, password, name: "" });
  if (roles.length > 0) await api(place, token, "PUT", `users/${id}/roles`, { roles });
  const login = await fetch(`${place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email, password }),
  });
  return ((await login.json()) as { session_token: string }).session_token;
}

it("keeps organizations, members, roles and groups", async () => {
  const grace = await user("grace");
  const linus = await user("linus");
  const aude = await user("aude", ["auditor"]);
  const { page } = await open(place, token);
  const tab = (name: string) =>
    page.getByRole("navigation", { name: "Organization" }).getByRole("link", { name, exact: true }).click();
  const dialog = page.getByRole("dialog");

  // The owner creates an organization. What the server refuses is shown with its reason.
  await page.goto("/workspaces");
  await (await admin(page)).getByRole("menuitem", { name: "Organizations" }).click();
  await page.getByRole("link", { name: "New organization" }).click();
  await page.getByLabel("Name", { exact: true }).fill("new");
  await page.getByRole("button", { name: "Create organization" }).click();
  await page.getByText("Is reserved").waitFor();
  await page.getByLabel("Name", { exact: true }).fill("research");
  await page.getByLabel("Display name").fill("Research & more");
  await page.getByLabel("Icon").fill("/emojis/1f52c.png");
  await page.getByRole("button", { name: "Create organization" }).click();
  await page.waitForURL("**/organizations/research/members");
  await page.getByRole("row").filter({ hasText: "ada@example.com" }).getByText("Organization Admin").waitFor();

  // A custom role.
  await tab("Roles");
  await page.getByRole("link", { name: "Organization Auditor" }).click();
  await page.getByText("Connection log").waitFor();
  await axe(page, "a built-in role");
  await tab("Roles");
  await page.getByRole("link", { name: "New role" }).click();
  await page.getByLabel("Name", { exact: true }).fill("group-keeper");
  await page.getByLabel("Display name").fill("Group keeper");
  const groups = page.getByRole("group", { name: "Groups" });
  for (const box of await groups.getByRole("checkbox").all()) await box.check();
  await page.getByText("4 permissions").waitFor();
  await axe(page, "new role");
  await picture(page, "role");
  await page.getByRole("button", { name: "Create role" }).click();
  await page.getByRole("region", { name: "Custom roles" }).getByText("group-keeper").waitFor();

  // Members, and the role for one.
  await tab("Members");
  for (const name of ["grace", "linus"]) {
    await page.getByRole("button", { name: "Add member" }).click();
    await dialog.getByLabel("Username").fill(name);
    await dialog.getByRole("button", { name: "Add member" }).click();
    await page
      .getByRole("row")
      .filter({ hasText: `${name}@example.com` })
      .waitFor();
  }
  await page.getByRole("button", { name: "Add member" }).click();
  await dialog.getByLabel("Username").fill("grace");
  await dialog.getByRole("button", { name: "Add member" }).click();
  await dialog.getByText("grace is already a member of research").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  const row = page.getByRole("row").filter({ hasText: "grace@example.com" });
  await row.getByRole("button", { name: "More for grace" }).click();
  await page.getByRole("menuitem", { name: "Change roles…" }).click();
  await dialog.getByLabel(/^Group keeper/).check();
  await axe(page, "roles of a member");
  await dialog.getByRole("button", { name: "Save roles" }).click();
  await row.getByText("Group keeper").waitFor();
  await page.getByLabel("Search members").fill("gra");
  await page.getByRole("row").filter({ hasText: "linus" }).waitFor({ state: "detached" });
  await axe(page, "members");

  // Grace keeps the groups, and nothing else. Names of groups can have any character.
  const other = await open(place, grace);
  const hers = other.page;
  await hers.goto("/organizations/research/groups");
  await (await admin(hers)).getByRole("menuitem", { name: "Organizations" }).waitFor();
  await hers.keyboard.press("Escape");
  await hers.getByRole("button", { name: "New group" }).click();
  const name = "Ops / 50% & more";
  await hers.getByRole("dialog").getByLabel("Name", { exact: true }).fill(name);
  await hers.getByRole("dialog").getByLabel("Quota allowance").fill("40");
  await hers.getByRole("button", { name: "Create group" }).click();
  await hers.getByRole("heading", { name }).waitFor();
  await hers.getByRole("button", { name: "Add member" }).click();
  await hers.getByRole("dialog").getByLabel("Username").fill("aude");
  await hers.getByRole("dialog").getByRole("button", { name: "Add member" }).click();
  await hers.getByRole("dialog").getByRole("alert").waitFor(); // aude is no member of the organization
  await hers.getByRole("dialog").getByLabel("Username").fill("linus");
  await hers.getByRole("dialog").getByRole("button", { name: "Add member" }).click();
  await hers.getByRole("row").filter({ hasText: "linus" }).waitFor();
  // Another session sees it without a reload.
  await tab("Groups");
  await page.getByRole("link", { name }).click();
  await page.getByRole("row").filter({ hasText: "linus" }).waitFor();
  await hers.getByLabel("Display name").fill("Operations");
  await hers.getByRole("button", { name: "Save" }).click();
  await hers.getByRole("heading", { name: "Operations" }).waitFor();
  await page.getByRole("heading", { name: "Operations" }).waitFor();
  await axe(hers, "a group");
  await hers.goto("/organizations/research");
  await hers.getByText("Research & more").first().waitFor();
  expect(await hers.getByRole("button", { name: /Save|Delete organization/ }).count()).toBe(0);
  await hers.goto("/organizations/research/members");
  await hers.getByRole("row").filter({ hasText: "linus" }).waitFor();
  expect(await hers.getByRole("button", { name: /Add member|More for/ }).count()).toBe(0);
  await hers.goto("/organizations/research/new-role");
  await hers.getByText("You cannot create roles").waitFor();

  // Linus sees the members and groups of his organization, without addresses, and changes nothing.
  const his = (await open(place, linus)).page;
  const asked = his.waitForResponse("**/api/v2/authcheck");
  await his.goto("/workspaces");
  await (await asked).finished();
  const main = his.getByRole("navigation", { name: "Main" });
  expect(await main.getByRole("button", { name: "Admin" }).count()).toBe(0);
  await his.getByRole("button", { name: "Account of linus" }).click();
  await his.getByRole("menuitem", { name: "Organizations and groups" }).click();
  await his.getByRole("link", { name: "Research & more" }).click();
  await his.getByRole("link", { name: "Groups" }).click();
  await his.getByRole("row").filter({ hasText: "Operations" }).getByText("40 credits a day").waitFor();
  await his.getByRole("link", { name: "Operations" }).click();
  await his.getByText("40 credits a day for the workspaces of each member.").waitFor();
  await his.reload();
  await his.getByRole("heading", { name: "Operations" }).waitFor();
  expect(await his.getByRole("button", { name: /Save|Delete|Add member|Remove/ }).count()).toBe(0);
  await his.goto("/organizations/research/members");
  await his.getByRole("row").filter({ hasText: "grace" }).waitFor();
  expect(await his.getByText(/(ada|grace)@example/).count()).toBe(0);

  // A role has effect without a reload: he may read the organization's log now.
  await api(place, token, "PUT", "organizations/research/members/linus/roles", { roles: ["organization-auditor"] });
  await (await admin(his)).getByRole("menuitem", { name: "Audit" }).click();
  await his.getByRole("row").filter({ hasText: "grace created group Ops" }).waitFor();

  // The auditor reads what she is no member of; a row of the log leads to the group.
  const log = (await open(place, aude)).page;
  await log.goto("/audit?q=resource_type%3Agroup");
  await log.getByRole("link", { name: /created group Ops/ }).click();
  await log.getByRole("heading", { name: "Operations" }).waitFor();
  expect(await log.getByRole("button", { name: /Save|Delete|Add member|Remove/ }).count()).toBe(0);
  await log.goto("/organizations/research/roles/group-keeper");
  await log.getByText("See, create, change and choose members, delete").waitFor();

  // For users outside the organization it does not exist.
  const outside = (await open(place, await user("eliza"))).page;
  await outside.goto("/organizations");
  await outside.waitForURL(/\/organizations\/(?!research)[^/]+$/); // the only one that she sees
  await outside.goto("/organizations/research");
  await outside.getByText("Organization not found").waitFor();

  // The end: what is in use is not deleted.
  await tab("Members");
  await page.getByLabel("Search members").fill("");
  await page.getByRole("button", { name: "More for linus" }).click();
  await page.getByRole("menuitem", { name: "Remove…" }).click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("row").filter({ hasText: "linus" }).waitFor({ state: "detached" });
  await his.goto("/organizations/research/members");
  await his.getByText("Organization not found").waitFor();
  await tab("Roles");
  await page.getByRole("button", { name: "More for Group keeper" }).click();
  await page.getByRole("menuitem", { name: "Delete…" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.getByText("No custom roles").waitFor();
  await tab("Groups");
  await page.getByRole("link", { name: "Operations" }).click();
  await page.getByRole("button", { name: "Delete group…" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.getByText("Create a group to share").waitFor();
  await api(place, token, "POST", "organizations/research/provisionerkeys", { name: "left", tags: {} });
  await tab("General");
  const remove = async () => {
    await page.getByRole("button", { name: "Delete organization…" }).click();
    await dialog.getByLabel(/to confirm/).fill("research");
    await dialog.getByRole("button", { name: "Delete" }).click();
  };
  await remove();
  await dialog.getByText("still in use: 1 provisioner key").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await api(place, token, "DELETE", "organizations/research/provisionerkeys/left");
  await remove();
  await page.waitForURL("**/organizations");
  await expect.poll(() => page.getByText("Research & more").count()).toBe(0);
});

it("tells templates of the same name in two organizations apart", async () => {
  await api(place, token, "POST", "organizations", { name: "shop", display_name: "Shop" });
  const [first] = await api<Template[]>(place, token, "GET", "templates?q=exact_name:process");
  const version = await api<TemplateVersion>(place, token, "GET", `templateversions/${first!.active_version_id}`);
  const copy = await api<TemplateVersion>(place, token, "POST", "organizations/shop/templateversions", {
    name: "copied",
    file_id: version.job.file_id,
    storage_method: "file",
    provisioner: "terraform",
  });
  await until("the copy is imported", async () => {
    const { job } = await api<TemplateVersion>(place, token, "GET", `templateversions/${copy.id}`);
    if (job.error) throw new Error(job.error);
    return job.status === "succeeded";
  });
  const second = await api<Template>(place, token, "POST", "organizations/shop/templates", {
    name: "process",
    template_version_id: copy.id,
  });

  const { page } = await open(place, token);
  await page.goto("/templates");
  const shop = page.getByRole("listitem").filter({ hasText: "Shop" });
  await axe(page, "templates of two organizations");
  await shop.getByRole("link", { name: "process", exact: true }).click();
  await page.waitForURL(`**/templates/${second.id}`);
  await page.getByRole("navigation", { name: "Template" }).getByRole("link", { name: "Versions" }).click();
  await page.getByRole("link", { name: "copied" }).click();
  await page.waitForURL(`**/templates/${second.id}/versions/copied`);
  await page.getByText("active", { exact: true }).waitFor();
  await page.goto("/templates");
  await shop.getByRole("link", { name: /^Create workspace/ }).click();
  await page.getByLabel("Name", { exact: true }).fill("shopping");
  await page.getByRole("button", { name: "Create workspace" }).click();
  await page.waitForURL("**/@ada/shopping");
  await page.getByRole("link", { name: "process" }).first().click();
  await page.waitForURL(`**/templates/${second.id}`);
  await page.goto("/templates/process/versions");
  await page.getByRole("link", { name: version.name }).waitFor();
  expect(await page.getByRole("link", { name: "copied" }).count()).toBe(0);
  // The other files call theirs by name.
  await api(place, token, "PATCH", `templates/${second.id}`, { name: "till" });
});

it("shows every page in the dark and on a phone", async () => {
  await api(place, token, "POST", "organizations", {
    name: "lab",
    description: "Prototypes",
    icon: "/emojis/1f9ea.png",
  });
  await api(place, token, "POST", "organizations/lab/members/roles", {
    name: "reader",
    display_name: "",
    site_permissions: [],
    user_permissions: [],
    organization_member_permissions: [],
    organization_permissions: [{ negate: false, resource_type: "template", action: "read" }],
  });
  await api(place, token, "POST", "organizations/lab/groups", { name: "a-group-with-a-long-name-".repeat(5) });
  await api(place, token, "POST", "organizations/lab/groups", { name: "ops", quota_allowance: 12 });
  for (const look of [{ dark: true }, { width: 390 }]) {
    const { page } = await open(place, token, look);
    for (const path of [
      "",
      "/new",
      "/lab",
      "/lab/members",
      "/lab/roles",
      "/lab/roles/reader",
      "/lab/roles/organization-admin",
      "/lab/new-role",
      "/lab/groups",
      "/lab/groups/ops",
      "/lab/provisioners",
    ]) {
      const what = `${path} ${JSON.stringify(look)}`;
      await page.goto(`/organizations${path}`);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page
        .getByText(/^Loading/)
        .first()
        .waitFor({ state: "detached" });
      await axe(page, what);
      await fits(page, what);
    }
  }
});

it("asks an invited user before they become a member", async () => {
  const ida = await user("ida");
  const vera = await user("vera");
  await api(place, token, "POST", "organizations", { name: "club" });
  await api(place, token, "POST", "organizations/club/members/ida");
  await api(place, token, "PUT", "organizations/club/members/ida/roles", { roles: ["organization-admin"] });
  const { page } = await open(place, ida);
  await page.goto("/organizations/club/members");
  await page.getByRole("button", { name: "Add member" }).click();
  await page.getByRole("dialog").getByLabel("Username").fill("vera");
  await page.getByRole("dialog").getByRole("button", { name: "Add member" }).click();
  const sent = page.getByRole("region", { name: "Invitations" });
  await sent.getByRole("row").filter({ hasText: "vera" }).waitFor();
  await axe(page, "sent invitations");

  const hers = (await open(place, vera)).page;
  await hers.goto("/workspaces");
  const banner = hers.getByRole("region", { name: "Invitation to club" });
  await banner.getByText("ida").waitFor();
  await axe(hers, "an invitation");
  await banner.getByRole("button", { name: "Accept" }).click();
  await banner.waitFor({ state: "detached" });
  await page.reload();
  await page.getByRole("region", { name: "Members" }).getByRole("row").filter({ hasText: "vera" }).waitFor();
  expect(await sent.count()).toBe(0);
});
