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

// useRestart has the server stop the workspace and start it again. The server checks the start before it stops anything, and starts
// the workspace even when this page is closed meanwhile.
export function useRestart(workspace: Workspace) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (values?: ParameterValue[]) =>
      send<WorkspaceBuild>("POST", `workspaces/${workspace.id}/restart`, {
        reason: "dashboard",
        ...(values ? { rich_parameter_values: values } : {}),
      }),
    onSuccess: async () => putWorkspace(client, await get<Workspace>(`workspaces/${workspace.id}`)),
  });
}
