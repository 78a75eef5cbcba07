// Switches of administrators: a dismissed health check, and sharing in an organization.
// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, fireEvent, render, screen, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { queries } from "~/api/queries";
import type { HealthReport, HealthSection, Organization } from "~/api/types";
import { SharingOfWorkspaces } from "~/components/organization/settings";
import Health from "./health";

configure({ asyncUtilTimeout: 30_000 }); // of a busy machine

let client: QueryClient;
let sent: { method: string; path: string; body: unknown }[];
let answers: Record<string, unknown>; // by method and path

beforeEach(() => {
  HTMLDialogElement.prototype.showModal = function (this: HTMLDialogElement) {
    this.open = true;
  };
  client = new QueryClient({ defaultOptions: { queries: { retry: false, staleTime: Infinity } } });
  sent = [];
  answers = {};
  vi.stubGlobal("fetch", (url: string, init?: RequestInit) => {
    const method = init?.method ?? "GET";
    const path = url.replace("/api/v2/", "");
    if (method !== "GET") sent.push({ method, path, body: JSON.parse(init!.body as string) });
    return Promise.resolve(new Response(JSON.stringify(answers[`${method} ${path}`] ?? {}), { status: 200 }));
  });
});

afterEach(() => {
  cleanup();
  client.clear();
  vi.unstubAllGlobals();
});

const show = (page: ReactNode) => render(<QueryClientProvider client={client}>{page}</QueryClientProvider>);

const section = (name: string, label: string, more: Partial<HealthSection>): HealthSection => ({
  name,
  label,
  healthy: true,
  severity: "ok",
  code: "",
  message: "",
  remedy: "",
  details: {},
  dismissed: false,
  ...more,
});

const report = (dismissed: boolean): HealthReport => ({
  checked_at: new Date().toISOString(),
  healthy: true,
  severity: "ok",
  servers: [],
  sections: [
    section("relay", "Relay", { severity: "warning", code: "relay_no_stun", dismissed }),
    section("database", "Database", {}),
  ],
});

it("dismisses a check and counts it again, and names no other", async () => {
  client.setQueryData(queries.health().queryKey, report(false));
  answers = { "GET debug/health": report(true) };
  show(<Health />);
  screen.getByText(/1 check needs attention/);
  expect(screen.queryByRole("button", { name: "Dismiss Database" })).toBeNull();
  fireEvent.click(screen.getByRole("button", { name: "Dismiss Relay" }));
  await screen.findByText(/All checks passed/);
  expect(sent).toEqual([{ method: "PATCH", path: "debug/health/settings", body: { dismiss: ["relay"] } }]);

  answers["GET debug/health"] = report(false);
  fireEvent.click(screen.getByRole("button", { name: "Count again Relay" }));
  await screen.findByText(/1 check needs attention/);
  expect(sent[1]!.body).toEqual({ undismiss: ["relay"] });
});

it("asks before sharing is disabled in an organization", async () => {
  const path = "organizations/o/settings/workspace-sharing";
  client.setQueryData(queries.organizationSharing("o").queryKey, { sharing_disabled: false });
  answers = { [`PATCH ${path}`]: { sharing_disabled: true } };
  show(<SharingOfWorkspaces organization={{ id: "o", display_name: "East" } as Organization} />);
  fireEvent.click(screen.getByRole("button", { name: "Disable sharing…" }));
  expect(sent).toEqual([]);
  fireEvent.click(screen.getByRole("button", { name: "Disable" }));
  await screen.findByText(/cannot be shared in this organization/);
  expect(sent).toEqual([{ method: "PATCH", path, body: { sharing_disabled: true } }]);

  answers = { [`PATCH ${path}`]: { sharing_disabled: false } };
  fireEvent.click(screen.getByRole("button", { name: "Enable sharing" }));
  await waitFor(() => expect(sent).toHaveLength(2));
  await screen.findByText(/Owners can share/);
});
