// What can be done to a workspace.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { get, send } from "./client";
import { putWorkspace } from "./queries";
import type { ParameterValue, Transition, Workspace, WorkspaceBuild } from "./types";

export interface BuildRequest {
  transition: Transition;
  template_version_id?: string;
  rich_parameter_values?: ParameterValue[];
  orphan?: boolean;
  log_level?: "debug";
}

export const createBuild = (workspace: string, request: BuildRequest) =>
  send<WorkspaceBuild>("POST", `workspaces/${workspace}/builds`, { ...request, reason: "dashboard" });

// useBuild begins a build and shows the workspace with it at once.
export function useBuild(workspace: Workspace) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (request: BuildRequest) => createBuild(workspace.id, request),
    onSuccess: async () => putWorkspace(client, await get<Workspace>(`workspaces/${workspace.id}`)),
  });
}

// ended waits for the end of a build.
async function ended(build: string): Promise<WorkspaceBuild> {
  for (;;) {
    const now = await get<WorkspaceBuild>(`workspacebuilds/${build}`);
    if (now.job.completed_at) return now;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

// restart stops a workspace and, when that has worked, starts it.
export async function restart(workspace: Workspace, values?: ParameterValue[]): Promise<WorkspaceBuild> {
  const stop = await ended((await createBuild(workspace.id, { transition: "stop" })).id);
  if (stop.job.status !== "succeeded") throw new Error("The workspace did not stop, so it was not started again.");
  return createBuild(workspace.id, { transition: "start", ...(values ? { rich_parameter_values: values } : {}) });
}
