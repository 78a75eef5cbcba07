// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Workspace } from "~/api/types";
import { Toasts } from "./toasts";
import { ActionDialogs, PrimaryAction, useWorkspaceActions } from "./workspace-actions";

const workspace = (name: string, status: string) =>
  ({
    id: name,
    name,
    permissions: { build: true, delete: true },
    latest_build: { status, job: { status: "succeeded" } },
  }) as unknown as Workspace;
const list = [workspace("one", "stopped"), workspace("two", "stopped"), workspace("three", "running")];

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

const show = () =>
  render(
    <QueryClientProvider client={new QueryClient()}>
      <List />
    </QueryClientProvider>,
  );

it("marks each workspace that the server has not answered for, and no other", async () => {
  show();
  fireEvent.click(screen.getByRole("button", { name: "Start one" }));
  await screen.findByRole("button", { name: "Working…" });
  fireEvent.click(screen.getByRole("button", { name: "Start two" }));
  await vi.waitFor(() => expect(screen.getAllByRole("button", { name: "Working…" })).toHaveLength(2));
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
  await vi.waitFor(() => expect(asked).toEqual(["POST /api/v2/workspaces/three/builds"]));
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
