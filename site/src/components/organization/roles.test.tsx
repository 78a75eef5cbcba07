// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { AssignableRole, Organization } from "~/api/types";
import { checksIn, permissionsOf } from "~/lib/permissions";
import { RoleForm } from "./roles";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const organization = { id: "o", name: "research", display_name: "Research" } as Organization;
const everything = Object.fromEntries(Object.keys(checksIn("o")).map((key) => [key, true]));

const role: AssignableRole = {
  name: "keeper",
  display_name: "Keeper",
  built_in: false,
  assignable: true,
  site_permissions: [],
  user_permissions: [],
  organization_member_permissions: [],
  organization_permissions: permissionsOf(["group.read", "group_member.read", "organization.delete"]),
};

function show(may: Record<string, boolean>) {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <RoleForm organization={organization} may={may} role={role} />
    </QueryClientProvider>,
  );
  return (kind: string, label: string) =>
    within(screen.getByRole("group", { name: kind })).getByRole<HTMLInputElement>("checkbox", { name: label });
}

it("offers only permissions that the user has, and keeps the others", async () => {
  const sent = vi.fn((_path: string, _request: { method: string; body: string }) =>
    Promise.resolve(new Response("{}")),
  );
  vi.stubGlobal("fetch", sent);
  const box = show({ ...everything, "organization.delete": false, "template.create": false });
  expect(screen.getByText("2 permissions")).toBeTruthy();
  const states = (b: HTMLInputElement) => [b.checked, b.disabled];
  expect(states(box("Groups", "See"))).toEqual([true, false]);
  expect(states(box("The organization", "Delete"))).toEqual([true, true]);
  expect(states(box("Templates", "Create"))).toEqual([false, true]);
  fireEvent.click(box("Groups", "See"));
  fireEvent.click(box("Groups", "Create"));
  fireEvent.click(screen.getByRole("button", { name: "Save role" }));
  await waitFor(() => expect(sent).toHaveBeenCalledOnce());
  const [path, request] = sent.mock.calls[0]!;
  expect([request.method, path]).toEqual(["PUT", "/api/v2/organizations/research/members/roles"]);
  expect(JSON.parse(request.body)).toEqual({
    name: "keeper",
    display_name: "Keeper",
    site_permissions: [],
    user_permissions: [],
    organization_member_permissions: [],
    organization_permissions: permissionsOf(["organization.delete", "group.create"]),
  });
});

it("shows why the server refuses a role", async () => {
  const refusal = { message: "The role has powers that you do not have." };
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(JSON.stringify(refusal), { status: 403 })));
  show(everything);
  fireEvent.click(screen.getByRole("button", { name: "Save role" }));
  expect((await screen.findByRole("alert")).textContent).toContain(refusal.message);
});
