// What can be done to a workspace.
import { type QueryClient, useMutation, useMutationState, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { get, send } from "./client";
import { followBuild } from "./follow";
import { putWorkspace } from "./queries";
import type {
  CreateBuildRequest,
  CreateTokenResponse,
  ParameterValue,
  UpdateDormancyRequest,
  Workspace,
  WorkspaceBuild,
} from "./types";

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

// openWithToken opens an address that contains a session token of the user: that of a program on this machine.
export async function openWithToken(make: (token: string) => string) {
  const { key } = await send<CreateTokenResponse>("POST", "users/me/keys");
  location.assign(make(key));
}

export type Action = "start" | "stop" | "restart" | "update" | "delete" | "forget" | "cancel" | "favorite" | "wake";

// perform returns the build that the action has started, if it is known.
async function perform(w: Workspace, action: Action): Promise<WorkspaceBuild | undefined> {
  switch (action) {
    case "wake":
      await wake(w);
      return undefined;
    case "start":
      if (w.dormant_at) await wake(w);
      return createBuild(w.id, { transition: "start" });
    case "stop":
    case "delete":
      return createBuild(w.id, { transition: action });
    case "update":
      return createBuild(w.id, { transition: "start", template_version_id: w.template_active_version_id });
    case "forget":
      return createBuild(w.id, { transition: "delete", orphan: true });
    case "restart":
      await restart(w.id); // its answer is the stop, not the start that follows
      return undefined;
    case "cancel":
      await send("PATCH", `workspacebuilds/${w.latest_build.id}/cancel`);
      return undefined;
    case "favorite":
      await send(w.favorite ? "DELETE" : "PUT", `workspaces/${w.id}/favorite`);
      return undefined;
  }
}

interface Doing {
  workspace: Workspace;
  action: Action;
  quiet?: boolean; // how the build ends is not reported
}

const performing = ["workspace-action"];

// usePerform performs actions on workspaces. One serves a whole list.
export function usePerform() {
  const client = useQueryClient();
  return useMutation({
    mutationKey: performing,
    mutationFn: ({ workspace, action }: Doing) => perform(workspace, action),
    onSuccess: (build, { workspace, quiet }) => {
      if (build && !quiet) followBuild(client, build);
      return reread(client, workspace.id);
    },
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
