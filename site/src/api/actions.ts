// What can be done to a workspace.
import { type QueryClient, useMutation, useMutationState, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { get, post, send } from "./client";
import { followBuild } from "./follow";
import { putWorkspace } from "./queries";
import type { CreateBuildRequest, ParameterValue, Workspace, WorkspaceBuild } from "./types";

// orders are the last builds that the user has requested here, by workspace. A start that is refused because of what it
// would replace can be requested again with permission.
export const orders: Record<string, CreateBuildRequest> = {};

// createBuild asks for a build. With the route "restart" the server stops the workspace and starts it again: it checks
// the start before it stops anything, and starts the workspace even when this page is closed meanwhile. The answer is
// the stop then, unless the workspace is stopped.
export function createBuild(workspace: string, request: CreateBuildRequest, route: "builds" | "restart" = "builds") {
  orders[workspace] = request;
  return post(route === "restart" ? "workspaces/{workspace}/restart" : "workspaces/{workspace}/builds", {
    workspace,
    body: { ...request, reason: "dashboard" },
  });
}

// asked has builds refused that would replace what the workspace keeps, so that the user can be asked. Without it, the
// template decides.
export const asked = { allow_replacing: [] as string[] };

// reread shows a workspace as it is now wherever it is shown.
export const reread = async (client: QueryClient, workspace: string) =>
  putWorkspace(client, await get("workspaces/{workspace}", { workspace }));

// wake ends a workspace's dormancy. It can be started then.
const wake = (w: Workspace) =>
  send("PUT workspaces/{workspace}/dormant", { workspace: w.id, body: { dormant: false } });

// openWithToken opens an address that contains a session token of the user: that of a program on this machine.
export async function openWithToken(make: (token: string) => string) {
  const { key } = await send("POST users/{user}/keys", { user: "me" });
  location.assign(make(key));
}

export type Action = "start" | "stop" | "restart" | "update" | "delete" | "forget" | "cancel" | "favorite" | "wake";

// perform returns the build that the action has started, if it is known.
async function perform({ workspace: w, action, quiet, parameters }: Doing): Promise<WorkspaceBuild | undefined> {
  const start: CreateBuildRequest = { transition: "start", ...(!quiet && asked) };
  switch (action) {
    case "wake":
      await wake(w);
      return undefined;
    case "start":
      return createBuild(w.id, start);
    case "stop":
      return createBuild(w.id, { ...start, transition: "stop" });
    case "delete":
      return createBuild(w.id, { transition: "delete" });
    case "forget":
      return createBuild(w.id, { transition: "delete", orphan: true });
    case "update": // what a running workspace keeps is known only after its stop
      await createBuild(
        w.id,
        {
          ...start,
          template_version_id: w.template_active_version_id,
          ...(parameters?.length && { rich_parameter_values: parameters }),
        },
        "restart",
      );
      return undefined;
    case "restart":
      await createBuild(w.id, start, "restart"); // its answer is the stop, not the start that follows
      return undefined;
    case "cancel":
      await send("PATCH workspacebuilds/{workspacebuild}/cancel", { workspacebuild: w.latest_build.id });
      return undefined;
    case "favorite":
      await send(w.favorite ? "DELETE workspaces/{workspace}/favorite" : "PUT workspaces/{workspace}/favorite", {
        workspace: w.id,
      });
      return undefined;
  }
}

interface Doing {
  workspace: Workspace;
  action: Action;
  quiet?: boolean; // how the build ends is not reported
  parameters?: ParameterValue[]; // of an update, those that change
}

const performing = ["workspace-action"];

// usePerform performs actions on workspaces. One serves a whole list.
export function usePerform() {
  const client = useQueryClient();
  return useMutation({
    mutationKey: performing,
    mutationFn: perform,
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
