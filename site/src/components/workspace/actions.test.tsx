// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, configure, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { User, Workspace } from "~/api/types";
import { Toasts } from "~/components/ui/toasts";
import { UserContext } from "~/components/ui/user";
import { ActionDialogs, ActionMenu, PrimaryAction, useWorkspaceActions } from "./actions";

configure({ asyncUtilTimeout: 30_000 }); // of a busy machine

const workspace = (name: string, status: string) =>
  ({
    id: name,
    name,
    permissions: { build: true, delete: true },
    latest_build: { status, job: { status: "succeeded" } },
  }) as unknown as Workspace;
const list = [workspace("one", "stopped"), workspace("two", "stopped"), workspace("three", "running")];

const admin = { id: "ada", roles: [{ name: "template-admin" }] } as unknown as User;

let asked: string[];
let answer: (response: Response) => void;
beforeEach(() => {
  asked = [];
  vi.stubGlobal("fetch", (path: string, { method }: RequestInit) => {
    asked.push(`${method} ${path}`);
    return new Promise<Response>((resolve) => (answer = resolve));
  });
  HTMLDialogElement.prototype.showModal = function () {
    this.open = true;
  };
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function List() {
  const { act, busy, ...rest } = useWorkspaceActions();
  return (
    <>
      {list.map((w) => (
        <PrimaryAction key={w.id} workspace={w} act={act} busy={busy.has(w.id)} />
      ))}
      <ActionDialogs actions={{ act, busy, ...rest }} />
      <Toasts />
    </>
  );
}

function Menu({ workspace: w }: { workspace: Workspace }) {
  const actions = useWorkspaceActions();
  return (
    <>
      <ActionMenu workspace={w} act={actions.act} busy={actions.busy.has(w.id)} />
      <ActionDialogs actions={actions} />
    </>
  );
}

const show = (page = <List />) =>
  render(
    <QueryClientProvider client={new QueryClient()}>
      <UserContext value={admin}>{page}</UserContext>
    </QueryClientProvider>,
  );

it("marks each workspace that the server has not answered for, and no other", async () => {
  show();
  fireEvent.click(screen.getByRole("button", { name: "Start one" }));
  await screen.findByRole("button", { name: "Working…" });
  fireEvent.click(screen.getByRole("button", { name: "Start two" }));
  await waitFor(() => expect(screen.getAllByRole("button", { name: "Working…" })).toHaveLength(2));
  screen.getByRole("button", { name: "Stop three" });
  expect(asked).toEqual(["POST /api/v2/workspaces/one/builds", "POST /api/v2/workspaces/two/builds"]);
  // The server refuses the second: the page says so, and it can be started again. The first still has no answer.
  answer(Response.json({ message: "There is no room." }, { status: 409 }));
  await screen.findByText("two: There is no room.");
  screen.getByRole("button", { name: "Start two" });
  expect(screen.getAllByRole("button", { name: "Working…" })).toHaveLength(1);
});

it("asks before it stops a workspace, in one dialog for all", async () => {
  show();
  fireEvent.click(screen.getByRole("button", { name: "Stop three" }));
  const dialog = await screen.findByRole("dialog", { name: "Stop three?" });
  expect(document.querySelectorAll("dialog")).toHaveLength(1);
  expect(asked).toEqual([]);
  fireEvent.click(within(dialog).getByRole("button", { name: "Stop" }));
  await waitFor(() => expect(asked).toEqual(["POST /api/v2/workspaces/three/builds"]));
});

it.each([
  ["Stop…", "Stop three?", "Stop", "POST /api/v2/workspaces/three/builds"],
  ["Restart…", "Restart three?", "Restart", "POST /api/v2/workspaces/three/restart"],
  ["Delete…", "Delete three?", "Delete", "POST /api/v2/workspaces/three/builds"],
  [
    "Delete without destroying resources…",
    "Delete three without destroying its resources?",
    "Delete",
    "POST /api/v2/workspaces/three/builds",
  ],
])("asks before %s, and says what ends", async (item, title, button, request) => {
  show(<Menu workspace={workspace("three", "failed")} />);
  fireEvent.keyDown(screen.getByRole("button", { name: "More for three" }), { key: "Enter" });
  fireEvent.click(await screen.findByRole("menuitem", { name: item }));
  const dialog = await screen.findByRole("dialog", { name: title });
  expect(dialog.textContent).toMatch(/running programs|its resources/i);
  expect(asked).toEqual([]);
  const typed = within(dialog).queryByLabelText(/to confirm/);
  if (typed) fireEvent.change(typed, { target: { value: "three" } });
  fireEvent.click(within(dialog).getByRole("button", { name: button }));
  await waitFor(() => expect(asked).toEqual([request]));
});

it("wakes a dormant workspace instead of starting it", async () => {
  list.push({ ...workspace("four", "stopped"), dormant_at: "2026-11-01T00:00:00Z" } as Workspace);
  show();
  expect(screen.queryByRole("button", { name: "Start four" })).toBeNull();
  fireEvent.click(screen.getByRole("button", { name: "Wake four" }));
  await screen.findByRole("button", { name: "Working…" });
  expect(asked).toEqual(["PUT /api/v2/workspaces/four/dormant"]);
  list.pop();
});

it.each(["running", "stopped"])(
  "offers nothing for a dormant workspace that the server refuses, %s",
  async (status) => {
    const dormant = { dormant_at: "2026-11-01T00:00:00Z", outdated: true };
    show(<Menu workspace={{ ...workspace("four", status), ...dormant }} />);
    fireEvent.keyDown(screen.getByRole("button", { name: "More for four" }), { key: "Enter" });
    await screen.findByRole("menuitem", { name: "Wake" });
    const offered = screen.getAllByRole("menuitem").filter((i) => i.getAttribute("aria-disabled") !== "true");
    expect(offered.map((i) => i.textContent)).toEqual([
      "Wake",
      ...(status === "running" ? ["Stop…"] : []),
      "Add to favorites",
      "Delete…",
    ]);
  },
);
