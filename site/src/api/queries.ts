// Every query of the dashboard and its cache key. A key begins with the kind that events invalidate.
import { type QueryClient, queryOptions } from "@tanstack/react-query";
import { ApiError, get, segment } from "./client";
import type * as t from "./types";

// Every deployment has one organization.
export const org = "organizations/default";

// Rows per request of a long list. Pages are fetched as the user scrolls.
export const pageSize = 100;

// Rows per page of the audit log and the connection log.
export const logPageSize = 25;

// The list's search before the user changes it.
export const firstSearch = "owner:me";

// gone reports whether an error means that the thing does not exist, or that this user has no access to it.
export const gone = (err: unknown) => err instanceof ApiError && (err.status === 404 || err.status === 410);

const ask = <T>(key: readonly unknown[], path: string) =>
  queryOptions({ queryKey: key, queryFn: ({ signal }) => get<T>(path, signal) });

// measured polls a query while it is on screen, every so many ms. It is for what the server measures on request, such
// as latency, because no event announces how that changes. Everything else relies on events.
export const measured = <Q extends object>(query: Q, every: number) => ({ ...query, refetchInterval: every });

export const queries = {
  me: () => ask<t.User>(["me"], "users/me"),
  firstUser: () =>
    queryOptions({
      queryKey: ["first-user"],
      queryFn: ({ signal }) =>
        get("users/first", signal).then(
          () => true,
          (err) => {
            if (gone(err)) return false;
            throw err;
          },
        ),
    }),
  authMethods: () => ask<t.AuthMethods>(["auth-methods"], "users/authmethods"),
  buildInfo: () => ask<t.BuildInfo>(["buildinfo"], "buildinfo"),
  sshConfig: () => ask<t.SSHConfig>(["sshconfig"], "deployment/ssh"),
  appsHost: () => ask<{ host: string }>(["appshost"], "applications/host"),

  audit: (search: string, page: number) =>
    ask<t.AuditLogsResponse>(
      ["audit", search, page],
      `audit?q=${segment(search)}&limit=${logPageSize}&offset=${page * logPageSize}`,
    ),
  connectionLog: (search: string, page: number) =>
    ask<t.ConnectionLogsResponse>(
      ["connectionlog", search, page],
      `connectionlog?q=${segment(search)}&limit=${logPageSize}&offset=${page * logPageSize}`,
    ),

  workspaces: (search: string, page = 0) =>
    ask<t.WorkspacesResponse>(
      ["workspaces", "list", search, page],
      `workspaces?q=${segment(search)}&limit=${pageSize}&offset=${page * pageSize}`,
    ),
  workspace: (owner: string, name: string) =>
    ask<t.Workspace>(["workspaces", "one", owner, name], `users/${segment(owner)}/workspace/${segment(name)}`),
  builds: (workspace: string) =>
    ask<t.WorkspaceBuild[]>(["workspaces", "builds", workspace], `workspaces/${workspace}/builds`),
  build: (owner: string, name: string, number: number) =>
    ask<t.WorkspaceBuild>(
      ["workspaces", "build", owner, name, number],
      `users/${segment(owner)}/workspace/${segment(name)}/builds/${number}`,
    ),
  buildParameters: (build: string) =>
    ask<t.BuildParameter[]>(["workspaces", "parameters", build], `workspacebuilds/${build}/parameters`),
  buildTimings: (build: string) =>
    ask<t.BuildTimings>(["workspaces", "timings", build], `workspacebuilds/${build}/timings`),
  ports: (agent: string) =>
    ask<{ ports: t.ListeningPort[] }>(["ports", agent], `workspaceagents/${agent}/listening-ports`),

  templates: () => ask<t.Template[]>(["templates", "list"], "templates"),
  template: (name: string) => ask<t.Template>(["templates", "one", name], `${org}/templates/${segment(name)}`),
  versions: (template: string) =>
    ask<t.TemplateVersion[]>(["templates", "versions", template], `templates/${template}/versions`),
  version: (id: string) => ask<t.TemplateVersion>(["templates", "version", id], `templateversions/${id}`),
  versionResources: (id: string) =>
    ask<t.WorkspaceResource[]>(["templates", "resources", id], `templateversions/${id}/resources`),
  variables: (id: string) =>
    ask<t.TemplateVersionVariable[]>(["templates", "variables", id], `templateversions/${id}/variables`),
  parameters: (id: string) =>
    ask<t.TemplateVersionParameter[]>(["templates", "parameters", id], `templateversions/${id}/rich-parameters`),
  presets: (id: string) => ask<t.Preset[]>(["templates", "presets", id], `templateversions/${id}/presets`),
  templateRights: (template: string) =>
    ask<t.TemplateACL>(["templates", "rights", template], `templates/${template}/acl`),
  examples: () => ask<t.TemplateExample[]>(["templates", "examples"], "templates/examples"),

  daemons: () => ask<t.ProvisionerDaemon[]>(["provisioners", "daemons"], `${org}/provisionerdaemons`),
  provisionerKeys: () => ask<t.ProvisionerKey[]>(["provisioners", "keys"], `${org}/provisionerkeys`),
  jobs: () => ask<t.ProvisionerJob[]>(["jobs", "list"], `${org}/provisionerjobs?limit=100`),

  users: () => ask<t.UsersResponse>(["users", "list"], "users?limit=1000"),
  tokens: () => ask<t.APIKey[]>(["tokens"], "users/me/keys/tokens"),
  quietHours: () => ask<t.QuietHours>(["quiet-hours"], "users/me/quiet-hours"),
  tokenConfig: () => ask<t.TokenConfig>(["tokens", "config"], "users/me/keys/tokens/tokenconfig"),
  secrets: () => ask<t.UserSecret[]>(["secrets"], "users/me/secrets"),
  sshKey: () => ask<t.GitSSHKey>(["sshkey"], "users/me/gitsshkey"),
  externalAuths: () => ask<t.ExternalAuths>(["external-auth", "list"], "external-auth"),
  externalAuth: (id: string) => ask<t.ExternalAuth>(["external-auth", "one", id], `external-auth/${segment(id)}`),
  logins: (version: string) =>
    ask<t.TemplateVersionExternalAuth[]>(
      ["external-auth", "version", version],
      `templateversions/${version}/external-auth`,
    ),
  health: () => ask<t.HealthReport>(["health"], "debug/health"),
  mesh: () => ask<t.MeshPeersResponse>(["mesh"], "mesh/peers"),
};

// putWorkspace puts a workspace that was just read into every cached answer. The next page starts from it and
// refetches, so that even a short build is seen.
export function putWorkspace(client: QueryClient, workspace: t.Workspace) {
  const { queryKey } = queries.workspace(workspace.owner_name, workspace.name);
  client.setQueryData(queryKey, workspace);
  void client.invalidateQueries({ queryKey });
  client.setQueriesData<t.WorkspacesResponse>(
    { queryKey: ["workspaces", "list"] },
    (list) => list && { ...list, workspaces: list.workspaces.map((w) => (w.id === workspace.id ? workspace : w)) },
  );
}
