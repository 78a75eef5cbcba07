// What an agent offers where users reach workspaces in the browser only.
// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { queries } from "~/api/queries";
import type { User, Workspace, WorkspaceAgent } from "~/api/types";
import { UserContext } from "~/components/ui/user";
import { Apps } from "./apps";
import { Connect } from "./connect";

let client: QueryClient;

beforeEach(() => {
  client = new QueryClient({ defaultOptions: { queries: { retry: false, staleTime: Infinity } } });
  vi.stubGlobal("fetch", () => Promise.resolve(new Response("{}", { status: 200 })));
});

afterEach(() => {
  cleanup();
  client.clear();
  vi.unstubAllGlobals();
});

const agent = {
  id: "a",
  name: "main",
  apps: [],
  display_apps: ["vscode", "web_terminal", "ssh_helper"],
  expanded_directory: "/home/ada",
} as unknown as WorkspaceAgent;
const workspace = {
  id: "w",
  name: "dev",
  owner_id: "u",
  owner_name: "ada",
  latest_build: { resources: [{ agents: [agent] }] },
} as unknown as Workspace;

const show = (browserOnly: boolean) => {
  client.setQueryData(queries.entitlements().queryKey, {
    features: { browser_only: { entitlement: browserOnly ? "entitled" : "not_entitled", enabled: browserOnly } },
    warnings: [],
    errors: [],
    has_license: true,
    trial: false,
    require_telemetry: false,
    refreshed_at: "",
  });
  return render(
    <QueryClientProvider client={client}>
      <UserContext value={{ id: "u" } as User}>
        <Apps workspace={workspace} agent={agent} enabled />
        <Connect workspace={workspace} agent={agent} />
      </UserContext>
    </QueryClientProvider>,
  );
};

it("offers editors and commands", () => {
  show(false);
  screen.getByRole("button", { name: "VS Code" });
  screen.getByRole("button", { name: "Copy SSH command" });
});

it("offers the terminal alone, and says why, in the browser only", () => {
  show(true);
  screen.getByRole("link", { name: "Terminal" });
  screen.getByText(/in the browser only/);
  expect(screen.queryByRole("button")).toBeNull();
  expect(screen.queryByText(/coder ssh/)).toBeNull();
});
