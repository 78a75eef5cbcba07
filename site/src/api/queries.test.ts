// How often a list of workspaces is read again: no event announces that jobs of other users have left the queue.
import { expect, it } from "vitest";
import { listed } from "./queries";
import type { Workspace, WorkspaceStatus } from "./types";

const every = (...statuses: WorkspaceStatus[]) => {
  const workspaces = statuses.map((status) => ({ latest_build: { status } }) as Workspace);
  return listed("owner:me").refetchInterval({ state: { data: { workspaces } } });
};

it("keeps places in the queue current, and polls for nothing else", () => {
  expect(every("running", "pending")).toBe(5000);
  expect(every("running", "starting", "stopped")).toBe(false);
  expect(every()).toBe(false);
  expect(listed("").refetchInterval({ state: { data: undefined } })).toBe(false);
});
