// What can be done to a workspace.
import { type QueryClient, useMutation, useMutationState, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { get, send } from "./client";
import { putWorkspace } from "./queries";
import type { CreateBuildRequest, ParameterValue, UpdateDormancyRequest, Workspace, WorkspaceBuild } from "./types";

export const createBuild = (workspace: string, request: CreateBuildRequest) =>
  send<WorkspaceBuild>("POST", `workspaces/${workspace}/builds`, { ...request, reason: "dashboard" });

// restart has the server stop the workspace and start it again. The server checks the start before it stops anything,
// and starts the workspace even when this page is closed meanwhile.
export const restart = (workspace: string, values?: ParameterValue[]) =>
  send<WorkspaceBuild>("POST", `workspaces/${workspace}/restart`, {
    reason: "dashboard",
    ...(values ? { rich_parameter_values: values } : {}),
  });

// reread shows a workspace as it is now wherever it is shown.
export const reread = async (client: QueryClient, workspace: string) =>
  putWorkspace(client, await get<Workspace>(`workspaces/${workspace}`));

// wake ends a workspace's dormancy. It can be started then.
const wake = (w: Workspace) =>
  send<Workspace>("PUT", `workspaces/${w.id}/dormant`, { dormant: false } satisfies UpdateDormancyRequest);

export type Action = "start" | "stop" | "restart" | "update" | "delete" | "forget" | "cancel" | "favorite" | "wake";

function perform(w: Workspace, action: Action): Promise<unknown> {
  switch (action) {
    case "wake":
      return wake(w);
    case "start":
      return (w.dormant_at ? wake(w) : Promise.resolve()).then(() => createBuild(w.id, { transition: "start" }));
    case "stop":
    case "delete":
      return createBuild(w.id, { transition: action });
    case "update":
      return createBuild(w.id, { transition: "start", template_version_id: w.template_active_version_id });
    case "forget":
      return createBuild(w.id, { transition: "delete", orphan: true });
    case "restart":
      return restart(w.id);
    case "cancel":
      return send("PATCH", `workspacebuilds/${w.latest_build.id}/cancel`);
    case "favorite":
      return send(w.favorite ? "DELETE" : "PUT", `workspaces/${w.id}/favorite`);
  }
}

interface Doing {
  workspace: Workspace;
  action: Action;
}

const performing = ["workspace-action"];

// usePerform performs actions on workspaces. One serves a whole list.
export function usePerform() {
  const client = useQueryClient();
  return useMutation({
    mutationKey: performing,
    mutationFn: ({ workspace, action }: Doing) => perform(workspace, action),
    onSuccess: (_, { workspace }) => reread(client, workspace.id),
  });
}

// usePerforming is the workspaces with a request that the server has not answered yet.
export function usePerforming(): ReadonlySet<string> {
  const doing = useMutationState({
    filters: { mutationKey: performing, status: "pending" },
    select: ({ state }) => state.variables as Doing,
  });
  return useMemo(() => new Set(doing.filter((d) => d.action !== "favorite").map((d) => d.workspace.id)), [doing]);
}
