// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { User, UserSession } from "~/api/types";
import Sessions, { UserSessions } from "./sessions";

// Only what hangs takes that long.
configure({ asyncUtilTimeout: 20_000 });
vi.setConfig({ testTimeout: 60_000 });

const at = "2026-11-01T00:00:00Z";
const session: UserSession = {
  id: "aaaaaaaaaa",
  device: "Firefox on Linux",
  user_agent: "Mozilla/5.0",
  address: "192.0.2.1",
  created_at: at,
  last_used_at: at,
  expires_at: at,
  current: true,
};
const unknown = { ...session, id: "bbbbbbbbbb", device: "", user_agent: "", address: "", current: false };

let sent: string[] = [];

function show(what: ReactNode) {
  vi.stubGlobal("fetch", (address: string, request: { method: string }) => {
    if (request.method !== "GET") sent.push(`${request.method} ${address}`);
    return Promise.resolve(
      request.method === "GET" ? new Response(JSON.stringify([session, unknown])) : new Response(null, { status: 204 }),
    );
  });
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  render(<QueryClientProvider client={client}>{what}</QueryClientProvider>);
}

beforeEach(() => {
  sent = [];
  HTMLDialogElement.prototype.showModal = function (this: HTMLDialogElement) {
    this.open = true;
  };
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

it("ends one session, the others, and all", async () => {
  show(<Sessions />);
  const rows = within(await screen.findByRole("list", { name: "Sessions" })).getAllByRole("listitem");
  expect(rows.map((r) => r.textContent?.includes("This session"))).toEqual([true, false]);
  expect(rows[0]!.textContent).toContain("192.0.2.1");
  const confirm = async (open: string, text: RegExp, action: string) => {
    fireEvent.click(screen.getByRole("button", { name: open }));
    await screen.findByText(text);
    fireEvent.click(screen.getByRole("button", { name: action }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  };
  await confirm("End the session of Unknown device", /open ends at once\. API tokens live on\.$/, "End session");
  await confirm("Sign out elsewhere…", /API tokens live on\.$/, "Sign out");
  await confirm("Sign out everywhere…", /You sign in again here, too\.$/, "Sign out");
  expect(sent).toEqual([
    "DELETE /api/v2/users/me/sessions/bbbbbbbbbb",
    "DELETE /api/v2/users/me/sessions?except_current=true",
    "DELETE /api/v2/users/me/sessions",
  ]);
});

it("signs another user out everywhere", async () => {
  show(<UserSessions user={{ id: "u1", username: "grace" } as User} onClose={() => {}} />);
  await screen.findByText("Firefox on Linux");
  fireEvent.click(screen.getByRole("button", { name: "Sign out everywhere…" }));
  await screen.findByText("Sign grace out everywhere?");
  fireEvent.click(screen.getByRole("button", { name: "Sign out" }));
  await waitFor(() => expect(sent).toEqual(["DELETE /api/v2/users/u1/sessions"]));
});
