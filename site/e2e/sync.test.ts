// Sync of groups, roles and organizations with the claims of the identity provider, as an owner and a member see it.
import { expect, inject, it } from "vitest";
import type { Group, GroupSyncSettings, Organization, OrganizationSyncSettings, User } from "../src/api/types";
import { axe, fits, open, withBrowser } from "./browser";
import { api } from "./server";
import { password } from "./setup";

withBrowser();
const place = inject("place");
const token = inject("token");

it("sets which groups, roles and organizations follow from claims", async () => {
  const made = await api<Organization>(place, token, "POST", "organizations", { name: "union", display_name: "Union" });
  const builders = await api<Group>(place, token, "POST", "organizations/union/groups", { name: "builders" });
  const email = "mabel@example.com";
  await api<User>(place, token, "POST", "users", { username: "mabel", email, password, name: "" });
  await api(place, token, "POST", "organizations/union/members/mabel");
  const login = await fetch(`${place.url}/api/v2/users/login`, {
    method: "POST",
    body: JSON.stringify({ email, password }),
  });
  const { session_token: mabel } = (await login.json()) as { session_token: string };

  const { page } = await open(place, token);
  await page.goto("/organizations/union");
  await page.getByRole("navigation", { name: "Organization" }).getByRole("link", { name: "Sync" }).click();
  await page.waitForURL("**/organizations/union/idp-sync");
  const groups = page.getByRole("form", { name: "Group sync" });
  const roles = page.getByRole("form", { name: "Role sync" });

  // The server's reason is shown at the field.
  await groups.getByLabel("Claim").fill("groups");
  await groups.getByLabel("Filter").fill("^(eng");
  await groups.getByRole("button", { name: "Save" }).click();
  await groups.getByText(/Must be a regular expression of RE2/).waitFor();
  await groups.getByLabel("Filter").fill("^eng-");
  await groups.getByLabel("Create missing groups").check();
  for (const [i, value] of ["eng", "guests", "extra"].entries()) {
    await groups.getByRole("button", { name: "Add value" }).click();
    await groups.getByLabel(`Value ${i + 1}`, { exact: true }).fill(value);
    await groups.getByLabel(`Group for value ${i + 1}`).selectOption(value === "eng" ? "builders" : "Nothing");
  }
  expect(await groups.getByLabel("Group for value 1").getByRole("option", { name: "Everyone" }).count()).toBe(0);
  await groups.getByRole("button", { name: "Remove value 3" }).click();
  await groups.getByRole("button", { name: "Save" }).click();
  await groups.getByText("Saved").waitFor();
  expect(await api<GroupSyncSettings>(place, token, "GET", "organizations/union/settings/idpsync/groups")).toEqual({
    field: "groups",
    mapping: { eng: [builders.id], guests: [] },
    regex_filter: "^eng-",
    auto_create_missing_groups: true,
  });

  await roles.getByLabel("Claim").fill("duties");
  await roles.getByRole("button", { name: "Add value" }).click();
  await roles.getByLabel("Value 1", { exact: true }).fill("leads");
  await roles.getByLabel("Role for value 1").selectOption("organization-admin");
  await roles.getByRole("button", { name: "Save" }).click();
  await roles.getByText("Saved").waitFor();

  await page.reload();
  await groups.getByLabel("Value 2", { exact: true }).waitFor();
  expect(await groups.getByLabel("Claim").inputValue()).toBe("groups");
  expect(await groups.getByLabel("Filter").inputValue()).toBe("^eng-");
  expect(await groups.getByLabel("Create missing groups").isChecked()).toBe(true);
  expect(await groups.getByLabel("Value 1", { exact: true }).inputValue()).toBe("eng");
  expect(await groups.getByLabel("Group for value 1").inputValue()).toBe(builders.id);
  expect(await groups.getByLabel("Value 2", { exact: true }).inputValue()).toBe("guests");
  expect(await roles.getByLabel("Claim").inputValue()).toBe("duties");
  expect(await roles.getByLabel("Value 1", { exact: true }).inputValue()).toBe("leads");
  expect(await roles.getByLabel("Role for value 1").inputValue()).toBe("organization-admin");
  await axe(page, "sync of an organization");

  // The owner sets which organizations follow.
  const site = "settings/idpsync/organization";
  const before = await api<OrganizationSyncSettings>(place, token, "GET", site);
  await page.goto("/organizations");
  await page.getByRole("link", { name: "Sync", exact: true }).click();
  await page.waitForURL("**/deployment/idp-org-sync");
  await page.getByLabel("Claim").fill("units");
  await page.getByRole("button", { name: "Add value" }).click();
  await page.getByLabel("Value 1", { exact: true }).fill("west");
  await page.getByLabel("Organization for value 1").selectOption("Union");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved").waitFor();
  expect(await api<OrganizationSyncSettings>(place, token, "GET", site)).toEqual({
    ...before,
    field: "units",
    mapping: { west: [made.id] },
  });
  await axe(page, "organization sync");

  // A member of the organization has no link, and reaches neither page nor settings.
  const hers = (await open(place, mabel)).page;
  await hers.goto("/organizations/union");
  await hers.getByText("About", { exact: true }).waitFor();
  expect(await hers.getByRole("link", { name: "Sync" }).count()).toBe(0);
  await hers.goto("/organizations/union/idp-sync");
  await hers.getByText("You cannot see the settings of sync").waitFor();
  await hers.goto("/deployment/idp-org-sync");
  await hers.getByText("You cannot see organization sync").waitFor();
  const refused = await fetch(`${place.url}/api/v2/organizations/union/settings/idpsync/groups`, {
    headers: { "Coder-Session-Token": mabel },
  });
  expect(refused.status).toBe(403);

  for (const look of [{ dark: true }, { width: 390 }]) {
    const other = (await open(place, token, look)).page;
    for (const path of ["/organizations/union/idp-sync", "/deployment/idp-org-sync"]) {
      const what = `${path} ${JSON.stringify(look)}`;
      await other.goto(path);
      await other.getByLabel("Value 1", { exact: true }).first().waitFor();
      await axe(other, what);
      await fits(other, what);
    }
  }

  // Other tests sign users in: the deployment does not sync any longer.
  await api(place, token, "PATCH", site, before);
});
