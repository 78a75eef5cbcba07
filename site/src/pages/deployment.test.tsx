// The overview of the deployment: what owners see, that no list ends early, and that others see nothing.
// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it } from "vitest";
import { deploymentOverview } from "~/api/overview";
import type { CostOf, DeploymentOverview, User } from "~/api/types";
import { UserContext } from "~/components/ui/user";
import Deployment from "./deployment";

let client: QueryClient;

beforeEach(() => {
  client = new QueryClient({ defaultOptions: { queries: { retry: false, staleTime: Infinity } } });
});

afterEach(() => {
  cleanup();
  client.clear();
});

const cost = (n: number, more: Partial<CostOf> = {}): CostOf => ({
  id: `id-${n}`,
  name: `name-${n}`,
  display_name: "",
  organization_name: "default",
  workspaces: 1000 - n,
  running: 0,
  daily_cost: n,
  ...more,
});

const users = Array.from({ length: 101 }, (_, i) => cost(101 - i));

const overview: DeploymentOverview = {
  collected_at: "2026-11-01T00:00:00Z",
  workspaces: { total: 12, running: 7, stopped: 2, building: 1, pending: 1, failed: 1, dormant: 1, prebuilt: 3 },
  users: { active: 40, dormant: 5, suspended: 2, seen_last_hour: 9 },
  queue: { waiting: 4, running: 2, oldest_waiting_seconds: 90, provisioners: 3 },
  days: Array.from({ length: 30 }, (_, i) => ({
    date: `2026-10-${String(i + 1).padStart(2, "0")}`,
    builds: i,
    failed: i === 29 ? 3 : 0,
    canceled: 0,
    users: 5,
  })),
  costs: { daily_cost: 5151, templates: [cost(1, { name: "docker" })], groups: [], users },
  servers: [{ id: "s", replica_url: "http://one", version: "v2.31.2", region: "", started_at: "2026-10-01T00:00:00Z" }],
  agent_versions: [
    { version: "v2.31.2", agents: 6, connected: 5 },
    { version: "", agents: 1, connected: 0 },
  ],
};

const show = (role: string) => {
  client.setQueryData(deploymentOverview().queryKey, overview);
  render(
    <QueryClientProvider client={client}>
      <UserContext value={{ roles: [{ name: role }] } as unknown as User}>
        <Deployment />
      </UserContext>
    </QueryClientProvider>,
  );
};

it("shows owners what runs, waits and fails, and the versions", () => {
  show("owner");
  screen.getByText("running, of 12");
  screen.getByText("jobs wait");
  screen.getByText("waits for 1 min 30 s");
  screen.getByLabelText("Builds by day: at most 29");
  screen.getByLabelText("Failed builds by day: at most 3");
  screen.getByText("most: 29 builds");
  screen.getByText("435 builds ended, 0 of them canceled. Today: 29.");
  within(screen.getByLabelText("Servers")).getByText("v2.31.2");
  within(screen.getByLabelText("Versions of agents")).getByText("not connected yet");
});

it("lists all costs, by page, sorted and searched", () => {
  show("owner");
  // jsdom takes long to find elements of a long page by their role.
  const names = () => [...document.querySelectorAll('[aria-label^="Costs by"] td a')].map((a) => a.textContent);
  const first = () => names()[0];
  const next = () => screen.getByText<HTMLButtonElement>("Next");
  screen.getByText("Costs: 5,151 credits a day");
  fireEvent.change(screen.getByLabelText("Costs by"), { target: { value: "users" } });
  screen.getByText(/^101 users/);
  expect(first()).toBe("name-101");
  const seen = new Set<string>();
  for (;;) {
    for (const name of names()) seen.add(name);
    if (next().disabled) break;
    fireEvent.click(next());
  }
  expect(seen.size).toBe(101);
  fireEvent.click(screen.getByTitle("Sort by workspaces"));
  expect(first()).toBe("name-1");
  fireEvent.click(screen.getByTitle("Sort by user"));
  expect(first()).toBe("name-1");
  fireEvent.change(screen.getByLabelText("Search costs"), { target: { value: "DEFAULT name-77" } });
  screen.getByText(/^1 user,/);
  expect(screen.getByText("name-77").getAttribute("href")).toBe("/workspaces?q=owner%3Aname-77");
  fireEvent.change(screen.getByLabelText("Search costs"), { target: { value: "nope" } });
  screen.getByText("Nothing found");
});

it("shows others nothing", () => {
  show("template-admin");
  screen.getByText(/Only owners/);
  expect(screen.queryByText("running, of 12")).toBeNull();
});
