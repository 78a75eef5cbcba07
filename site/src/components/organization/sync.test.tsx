// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { GroupSyncSettings, Organization } from "~/api/types";
import { OrganizationSyncForms } from "./sync";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const settings: GroupSyncSettings = {
  field: "groups",
  mapping: { eng: ["gone"], guests: [] },
  regex_filter: "^eng-",
  auto_create_missing_groups: false,
  legacy_group_name_mapping: { old: "new" },
};

const answers: Record<string, unknown> = {
  "organizations/o/settings/idpsync/groups": settings,
  "organizations/o/settings/idpsync/roles": { field: "", mapping: {} },
  "organizations/o/settings/idpsync/available-fields": ["groups", "teams"],
  "organizations/o/settings/idpsync/field-values?claimField=groups": ["eng", "ops"],
  "organizations/research/groups": [
    { id: "o", name: "Everyone" },
    { id: "g", name: "builders", display_name: "Builders" },
  ],
  "organizations/research/members/roles": [],
};

it("suggests what users had, and saves what it does not show with the rest", async () => {
  const sent = vi.fn((path: string, request?: { method?: string; body?: string }) =>
    Promise.resolve(new Response(request?.body ?? JSON.stringify(answers[path.replace("/api/v2/", "")]))),
  );
  vi.stubGlobal("fetch", sent);
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <OrganizationSyncForms organization={{ id: "o", name: "research" } as Organization} />
    </QueryClientProvider>,
  );
  const groups = within(await screen.findByRole("form", { name: "Group sync" }));
  const suggested = (label: string) =>
    [...(groups.getByLabelText<HTMLInputElement>(label).list?.options ?? [])].map((o) => o.value);
  await waitFor(() => expect(suggested("Value 1")).toEqual(["eng", "ops"]));
  expect(suggested("Claim")).toEqual(["groups", "teams"]);
  groups.getByText("old → new");

  // A group that was deleted stays until the row changes. Everyone cannot be chosen.
  const choice = groups.getByLabelText<HTMLSelectElement>("Group for value 1");
  await waitFor(() => expect([...choice.options].map((o) => o.text)).toContain("Builders"));
  expect(choice.value).toBe("gone");
  expect([...choice.options].map((o) => o.text)).not.toContain("Everyone");
  fireEvent.change(choice, { target: { value: "g" } });
  fireEvent.change(groups.getByLabelText("Filter"), { target: { value: "" } });
  fireEvent.click(groups.getByRole("button", { name: "Save" }));
  await groups.findByText("Saved");
  const [, request] = sent.mock.calls.find(([, r]) => r?.method === "PATCH")!;
  expect(JSON.parse(request!.body!)).toEqual({ ...settings, mapping: { eng: ["g"], guests: [] }, regex_filter: null });
});
