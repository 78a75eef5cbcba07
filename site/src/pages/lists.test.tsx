// @vitest-environment jsdom
// Lists of 101 rows: the last one is found, whatever the server's bound of an answer.
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, fireEvent, render, screen, waitFor } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { candidatesOfWorkspace } from "~/api/sharing";
import type { Template, TemplateVersion, User, Webhook, Workspace } from "~/api/types";
import Sessions from "~/components/account/sessions";
import { JobQueue } from "~/components/admin/job-queue";
import { UserContext } from "~/components/ui/user";
import { Tokens } from "./account";
import Audit from "./audit";
import { NewWorkspace } from "./create";
import { Versions } from "./template";
import Users from "./users";
import { Compare } from "./version";
import { Deliveries } from "./webhooks";
import { Builds } from "./workspace";

// jsdom has no media queries, and opens no dialogs.
vi.hoisted(() => {
  HTMLDialogElement.prototype.showModal = function (this: HTMLDialogElement) {
    this.open = true;
  };
  window.matchMedia = () => ({ matches: false, addEventListener: () => {}, removeEventListener: () => {} }) as never;
});

// Only what hangs takes that long.
configure({ asyncUtilTimeout: 20_000 });
vi.setConfig({ testTimeout: 60_000 });

const many = 101;
const at = "2026-11-01T00:00:00Z";
const later = (minutes: number) => new Date(Date.parse(at) + minutes * 60_000).toISOString();
const numbers = Array.from({ length: many }, (_, i) => i + 1);
const newest = numbers.toReversed();

type Answer = (query: URLSearchParams) => unknown;

let asked: { method: string; path: string; query: URLSearchParams; body: string | undefined }[] = [];

// api answers as the server would, by the path of a request. Anything else does not exist.
function api(answers: Record<string, Answer>) {
  vi.stubGlobal("fetch", (address: string, request: { method: string; body?: string }) => {
    const url = new URL(address, "http://localhost");
    const path = url.pathname.replace("/api/v2/", "");
    asked.push({ method: request.method, path, query: url.searchParams, body: request.body });
    const answer = answers[path];
    return Promise.resolve(
      answer
        ? new Response(JSON.stringify(answer(url.searchParams)))
        : new Response(JSON.stringify({ message: `no ${path}` }), { status: 404 }),
    );
  });
}

// page is the part of a list that a request asks for: at most as many rows as the server gives.
function page<T>(rows: T[], query: URLSearchParams, bound = 100): T[] {
  const limit = Math.min(Number(query.get("limit") ?? bound), bound);
  const offset = Number(query.get("offset") ?? 0);
  return rows.slice(offset, offset + limit);
}

const searched = (query: URLSearchParams) => /^search:"(.*)"$/.exec(query.get("q") ?? "")?.[1] ?? query.get("q") ?? "";

const me = {
  id: "me",
  username: "ada",
  name: "",
  roles: [{ name: "owner" }],
  organization_ids: ["o"],
} as unknown as User;
const template = {
  id: "t",
  name: "docker",
  display_name: "",
  organization_id: "o",
  active_version_id: "v101",
} as Template;

function show(what: ReactNode) {
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  render(
    <QueryClientProvider client={client}>
      <UserContext value={me}>{what}</UserContext>
    </QueryClientProvider>,
  );
}

const press = async (name: string) => {
  const button = await screen.findByRole<HTMLButtonElement>("button", { name });
  await waitFor(() => expect(button.disabled).toBe(false));
  fireEvent.click(button);
};

const type = (label: string, value: string) => fireEvent.change(screen.getByLabelText(label), { target: { value } });

beforeEach(() => {
  asked = [];
  history.replaceState(null, "", "/");
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const user = (n: number) =>
  ({ ...me, id: `u${n}`, username: `user-${n}`, email: `user-${n}@example.com`, roles: [], status: "active" }) as User;

const users = numbers.map(user);
const found = (query: URLSearchParams) => users.filter((u) => u.username.includes(searched(query)));

it("pages through users and searches among all", async () => {
  api({ users: (query) => ({ users: page(found(query), query), count: found(query).length }) });
  show(<Users />);
  await screen.findByText("101 users");
  await screen.findByText("user-50");
  expect(screen.queryByText("user-51")).toBeNull();
  await press("Next");
  await screen.findByText("51–100");
  await press("Next");
  await screen.findByText("user-101@example.com");
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Next" }).disabled).toBe(true);
  type("Search users", "user-77");
  await screen.findByText("user-77@example.com");
  await screen.findByText("1 user");
  expect(screen.queryByText("user-101@example.com")).toBeNull();
  type("Search users", "user-101");
  await screen.findByText("user-101@example.com");
  expect(screen.queryByRole("navigation", { name: "Pages" })).toBeNull();
  expect(asked.every(({ query }) => Number(query.get("limit")) <= 100)).toBe(true);
});

const choose = (label: string, value: string) =>
  fireEvent.change(screen.getByRole("combobox", { name: label }), { target: { value } });

it("asks the server for filtered users, keeps the filters in the address, and exports what they find", async () => {
  api({
    users: (query) => ({ users: page(users, query), count: many }),
    organizations: () => [
      { id: "o", name: "coder", display_name: "Coder" },
      { id: "e", name: "east", display_name: "East" },
    ],
  });
  history.replaceState(null, "", "/users?status=suspended&page=7&role=constructor");
  show(<Users />);
  await screen.findByText("101 users");
  expect(asked.find(({ path }) => path === "users")?.query.get("q")).toBe("status:suspended");
  await screen.findByRole("option", { name: "East" });
  choose("Role", "auditor");
  choose("Organization", "east");
  type("Search users", "zoe");
  const wanted = 'search:"zoe" role:auditor status:suspended organization:east';
  await waitFor(() => expect(asked.some(({ query }) => query.get("q") === wanted)).toBe(true));
  expect(location.search).toBe("?search=zoe&role=auditor&status=suspended&organization=east");
  const link = screen.getByRole("link", { name: "Export CSV" }).getAttribute("href")!;
  expect(link).toBe(`/api/v2/users/export?q=${encodeURIComponent(wanted)}&sort=username`);
  await press("Clear filters");
  await waitFor(() => expect(asked.some(({ query }) => query.get("q") === 'search:"zoe"')).toBe(true));
  expect(location.search).toBe("?search=zoe");
});

it("suspends and groups all of the users that a search finds", async () => {
  const self = { ...user(5), id: me.id };
  const mixed = users.map((u) => (u.id === "u5" ? self : u));
  const changes = mixed.filter((u) => u.id !== "u7").map((u) => [`users/${u.id}/status/suspend`, () => u] as const);
  api({
    users: (query) => ({ users: page(mixed, query), count: many }),
    groups: () => [
      { id: "o", organization_id: "o", name: "Everyone", source: "user" },
      { id: "g", organization_id: "o", name: "devs", source: "user" },
      { id: "x", organization_id: "e", name: "elsewhere", source: "user" },
      { id: "i", organization_id: "o", name: "synced", source: "oidc" },
    ],
    "groups/g": () => ({}),
    ...Object.fromEntries(changes),
  });
  show(<Users />);
  await screen.findByText("101 users");
  fireEvent.click(screen.getByRole("checkbox", { name: "Select this page" }));
  await press("Select all 101");
  await screen.findByText("101 selected");
  await press("Suspend 100 of 101…"); // not oneself
  await press("Suspend");
  const sent = (method: string) => asked.filter((a) => a.method === method).map(({ path }) => path);
  await screen.findByRole("checkbox", { name: "Select this page" }); // all were tried, and none is selected any more
  expect(sent("PUT").length).toBe(100); // one is refused, and the others go on
  expect(sent("PUT")).not.toContain("users/me/status/suspend");

  fireEvent.click(screen.getByRole("checkbox", { name: "Select this page" }));
  await press("Add to group…");
  await screen.findByRole("option", { name: /devs/ });
  expect(screen.queryByRole("option", { name: /synced|Everyone/ })).toBeNull();
  choose("Group", "x");
  await screen.findByText(/50 do not belong to/);
  choose("Group", "g");
  await press("Add 50 users");
  await waitFor(() => expect(sent("PATCH")).toEqual(["groups/g"]));
  const body = JSON.parse(asked.find((a) => a.method === "PATCH")!.body!) as { add_users: string[] };
  expect(body.add_users.length).toBe(50);
});

it("shows the jobs that run, and pages through those that wait and those that have ended", async () => {
  const jobs = newest.map((n) => ({
    id: `j${n}`,
    type: "workspace_build",
    status: "pending",
    created_at: at,
    tags: {},
    metadata: { workspace_name: `ws-${n}`, template_version_name: "" },
    organization_id: "o",
  }));
  const one = (status: string) => ({ ...jobs[0]!, id: status, status, metadata: { workspace_name: status } });
  const running = one("running");
  const ended = { ...one("succeeded"), completed_at: at };
  const byStatus: Record<string, unknown[]> = {
    pending: jobs,
    "running,canceling": [running],
    "": [...jobs, running, ended],
  };
  api({
    "organizations/default/provisionerjobs": (query) => page(byStatus[query.get("status") ?? ""] ?? [], query, 1000),
  });
  show(<JobQueue />);
  await screen.findByText("Jobs (52 or more)");
  await screen.findByText("ws-101");
  expect(screen.getAllByRole("row")[1]!.textContent).toContain("running");
  await press("Next");
  await screen.findByText("51–100");
  await press("Next");
  await screen.findByText("ws-1");
  await screen.findByText("Jobs (102)");
  await press("Show finished jobs");
  await screen.findByText("1–50");
  await press("Next");
  await screen.findByText("51–100");
  await press("Next");
  await screen.findByText("101–103");
  expect(screen.getAllByRole("row").at(-1)!.textContent).toContain("succeeded");
});

it("opens the page of builds that has the one on screen", async () => {
  const builds = newest.map((n) => ({
    id: `b${n}`,
    build_number: n,
    transition: "start",
    reason: "initiator",
    initiator_name: "ada",
    template_version_name: "v",
    created_at: at,
    job: { status: "succeeded", completed_at: at },
  }));
  api({ "workspaces/w/builds": (query) => page(builds, query, 1000) });
  const workspace = { id: "w", name: "dev", owner_name: "ada", latest_build: builds[0] } as unknown as Workspace;
  show(<Builds workspace={workspace} number={1} />);
  await screen.findByText("#1 start");
  await screen.findByText("101–101");
  await press("Newer");
  await screen.findByText("#2 start");
  await screen.findByText("51–100");
  await press("Newer");
  await screen.findByText("#101 start");
});

const versions = newest.map(
  (n) =>
    ({
      id: `v${n}`,
      name: `version-${n}`,
      message: `change ${n}`,
      created_at: later(n),
      created_by: { username: "ada" },
      job: { status: "succeeded", file_id: `f${n}` },
    }) as TemplateVersion,
);

const versionsAnswer: Answer = (query) => {
  const some = versions.filter((v) => `${v.name} ${v.message}`.includes(searched(query)));
  return page(query.get("sort") === "created" ? some : some.toReversed(), query, 1000);
};

it("pages through a template's versions, the newest first, and searches among all", async () => {
  api({ "templates/t/versions": versionsAnswer, authcheck: () => ({ update: true }) });
  show(<Versions template={template} />);
  await screen.findByText("version-101");
  expect(screen.queryByText("version-51")).toBeNull();
  await press("Older");
  await screen.findByText("version-51");
  await press("Older");
  await screen.findByText("version-1");
  type("Search versions", "change 33");
  await screen.findByText("version-33");
  await waitFor(() => expect(screen.queryByText("version-1")).toBeNull());
});

it("compares a version with any other one", async () => {
  api({
    "templates/t/versions": versionsAnswer,
    "templateversions/v101": () => versions[0],
    "organizations/o/templates/docker/versions/version-3/previous": () => versions.find((v) => v.name === "version-2"),
  });
  const compared = () => screen.getByLabelText<HTMLInputElement>("Compare with").value;
  // An old one with the active one, unless the user names another.
  show(<Compare template={template} version={versions.find((v) => v.name === "version-2")!} />);
  await waitFor(() => expect(compared()).toBe("version-101"));
  type("Compare with", "version-3");
  await waitFor(() => expect(asked.some(({ path }) => path === "files/f3")).toBe(true));
  type("Compare with", "version-0");
  await screen.findByText("No other version has this name.");
  cleanup();
  // The active one with the one before, which may be far down in the list.
  show(<Compare template={{ ...template, active_version_id: "v3" }} version={versions.find((v) => v.id === "v3")!} />);
  await waitFor(() => expect(compared()).toBe("version-2"));
  cleanup();
  show(<Compare template={template} version={versions[0]!} />);
  await waitFor(() => expect(compared()).toBe("version-100"));
});

it("pages through tokens", async () => {
  const tokens = numbers.map((n) => ({
    id: `k${n}`,
    token_name: `token-${n}`,
    scopes: [],
    allow_list: [],
    last_used: at,
    expires_at: later(1e9),
  }));
  api({ "users/me/keys/tokens": (query) => page(tokens, query, 1000) });
  show(<Tokens />);
  await screen.findByText("token-50");
  await press("Next");
  await screen.findByText("token-100");
  await press("Next");
  await screen.findByText("token-101");
});

it("pages through sessions", async () => {
  let sessions = numbers.map((n) => ({
    id: `k${n}`,
    device: `Laptop ${n}`,
    user_agent: "",
    address: "",
    created_at: at,
    last_used_at: at,
    expires_at: later(1e9),
    current: n === 1,
  }));
  api({
    "users/me/sessions": (query) => page(sessions, query, 1000),
    "users/me/sessions/k101": () => {
      sessions = sessions.slice(0, -1);
      return null;
    },
  });
  show(<Sessions />);
  await screen.findByText("Laptop 50");
  expect(screen.queryByText("Laptop 51")).toBeNull();
  await press("Next");
  await screen.findByText("Laptop 100");
  await press("Next");
  await screen.findByText("Laptop 101");
  // The only one of the last page ends, and the others can still be reached.
  await press("End the session of Laptop 101");
  await press("End session");
  await screen.findByText("End");
  expect(screen.queryByText("No sessions")).toBeNull();
  await press("Previous");
  await screen.findByText("Laptop 100");
  await waitFor(() => expect(screen.getByRole("button", { name: "Next" })).toHaveProperty("disabled", true));
});

it("goes on to the first of many deliveries to a webhook", async () => {
  const deliveries = newest.map((n) => ({
    id: n,
    type: `event-${n}`,
    status: "delivered",
    attempts: 1,
    response_status: 200,
    error: "",
    excerpt: "",
    created_at: at,
  }));
  api({
    "webhooks/h/deliveries": (query) => {
      const before = Number(query.get("before") ?? many + 1);
      return page(
        deliveries.filter((d) => d.id < before),
        query,
      );
    },
  });
  show(<Deliveries hook={{ id: "h", name: "ci", disabled_at: null } as unknown as Webhook} />);
  await screen.findByText("event-52");
  expect(screen.queryByText("event-51")).toBeNull();
  await press("Show older");
  await screen.findByText("event-2");
  await press("Show older");
  await screen.findByText("event-1");
  expect(screen.queryByRole("button", { name: "Show older" })).toBeNull();
  expect(screen.getAllByRole("row").length).toBe(many + 1); // and the heading
});

it("makes a workspace for the last of many members", async () => {
  api({
    "organizations/o/members/me/workspaces/available-users": (query) => page([me, ...found(query)], query),
    "templateversions/v101/presets": () => [],
    "templateversions/v101/external-auth": () => [],
    "templateversions/v101/resources": () => [],
    "templateversions/v101/dynamic-parameters/evaluate": () => ({ id: 1, parameters: [], diagnostics: [] }),
    "users/u101/workspaces": () => ({ id: "w", owner_name: "user-101", name: "dev", latest_build: { id: "b" } }),
  });
  show(<NewWorkspace template={template} />);
  await screen.findByLabelText("Owner");
  type("Name", "dev");
  const create = screen.getByRole<HTMLButtonElement>("button", { name: "Create workspace" });
  await waitFor(() => expect(create.disabled).toBe(false));
  type("Owner", "user-10");
  expect(create.disabled).toBe(true); // until the server has found the user
  await waitFor(() => expect(create.disabled).toBe(false));
  type("Owner", "user-102");
  await screen.findByText("No active member of the organization has this username.");
  expect(create.disabled).toBe(true);
  type("Owner", "user-101");
  await waitFor(() => expect(create.disabled).toBe(false));
  await waitFor(() => expect(asked.some(({ body }) => body?.includes('"owner_id":"u101"'))).toBe(true));
  await press("Create workspace");
  await waitFor(() => expect(asked.some((a) => a.method === "POST" && a.path === "users/u101/workspaces")).toBe(true));
});

it("offers no owner to those who create workspaces for themselves only", async () => {
  api({
    "organizations/o/members/me/workspaces/available-users": () => [me],
    "templateversions/v101/dynamic-parameters/evaluate": () => ({ id: 1, parameters: [], diagnostics: [] }),
  });
  show(<NewWorkspace template={template} />);
  type("Name", "dev");
  const create = screen.getByRole<HTMLButtonElement>("button", { name: "Create workspace" });
  await waitFor(() => expect(create.disabled).toBe(false));
  expect(screen.queryByLabelText("Owner")).toBeNull();
});

it("finds members and groups to share with at the server, whatever they are named", async () => {
  api({
    "organizations/o/paginated-members": (query) => ({
      members: page(found(query), query).map((u) => ({ user_id: u.id, username: u.username })),
      count: found(query).length,
    }),
    "organizations/o/groups": (query) => [{ id: "g", name: searched(query) }],
  });
  const find = candidatesOfWorkspace("o", "u1");
  const last = await find("user-101", new AbortController().signal);
  expect(last.users).toEqual([{ id: "u101", username: "user-101", name: "" }]);
  const odd = await find(' a:b "c" ', new AbortController().signal);
  expect(odd.groups.map((g) => g.name)).toEqual(["a:b c"]);
});

it("goes on after as many entries of the log as are counted", async () => {
  const rows = Array.from({ length: 25 }, (_, n) => ({
    id: `a${n}`,
    description: `entry ${n}`,
    time: at,
    diff: {},
    status_code: 200,
  }));
  api({
    audit: (query) => ({
      audit_logs: rows.slice(0, query.get("offset") === "10000" ? 1 : 25),
      count: 10_000,
      count_cap: 10_000,
    }),
  });
  history.replaceState(null, "", "/audit?page=399");
  show(<Audit />);
  await screen.findByText("9976–10000");
  await press("Older");
  await screen.findByText("10001–10001");
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Older" }).disabled).toBe(true);
});
