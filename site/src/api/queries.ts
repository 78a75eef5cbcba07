// Every query of the dashboard and its cache key. A key begins with the kind that events invalidate.
import { infiniteQueryOptions, type QueryClient, queryOptions } from "@tanstack/react-query";
import { ApiError, get, type Path, type Reading, send } from "./client";
import type * as t from "./types";

// How the API refers to the default organization.
export const standard = "default";

// Rows per request of a long list. Pages are fetched as the user scrolls.
export const pageSize = 100;

// Rows per page of the audit log and the connection log.
export const logPageSize = 25;

// Rows per page of an organization's or a group's members.
export const memberPageSize = 50;

const memberPage = (page: number) => ({ limit: memberPageSize, offset: page * memberPageSize });

// How many suggestions an input of users offers.
const suggestions = 10;

// Notifications per page of the inbox, which the server decides.
const inboxPageSize = 25;

// The list's search before the user changes it.
export const firstSearch = "owner:me";

// gone reports whether an error means that the thing does not exist, or that this user has no access to it.
export const gone = (err: unknown) => err instanceof ApiError && (err.status === 404 || err.status === 410);

const isID = (text: string) => /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i.test(text);

// containing is the search for rows whose names contain a text as it is: it may have spaces and colons.
export const containing = (text: string) => {
  const plain = text.replaceAll('"', "").trim();
  return plain && `search:"${plain}"`;
};

// ask is for queries of one part of the dashboard. Those in this file are in what a browser loads first.
export const ask = <P extends Path>(key: readonly unknown[], path: P, ...[given]: Reading<P>) =>
  queryOptions({
    queryKey: key,
    queryFn: ({ signal }) => get(path, ...([{ ...given, signal }] as unknown as Reading<P>)),
  });

type Checks = t.AuthorizationRequest["checks"];

// What of organizations the user manages or reads: of all of them, or of one at least.
const anywhere: Checks = {
  all: { action: "read", object: { resource_type: "organization" } },
  settings: { action: "update", object: { resource_type: "organization", any_org: true } },
  members: { action: "update", object: { resource_type: "organization_member", any_org: true } },
  groups: { action: "update", object: { resource_type: "group", any_org: true } },
  roles: { action: "update", object: { resource_type: "assign_org_role", any_org: true } },
  logs: { action: "read", object: { resource_type: "audit_log", any_org: true } },
};

// may asks which of the named things the user may do. Pages offer only these; the server decides about each request.
const may = (key: readonly unknown[], checks: Checks) =>
  queryOptions({
    queryKey: key,
    queryFn: () => send("POST authcheck", { body: { checks } }),
  });

// followed keeps an answer about organizations current while it is on screen. No event announces how they change, so
// it is read again when a page shows it, when the window gets the focus, and every 10 s.
const followed = <Q extends object>(query: Q) => ({
  ...query,
  staleTime: 0,
  refetchInterval: 10_000,
  refetchOnWindowFocus: true,
});

// measured polls a query while it is on screen, every so many ms. It is for what the server measures on request, such
// as latency, because no event announces how that changes. Everything else relies on events.
export const measured = <Q extends object>(query: Q, every: number) => ({ ...query, refetchInterval: every });

// whileQueued is how often to read workspaces again, in ms, of which some wait for a provisioner. No event announces
// that jobs of other users have left the queue.
export const whileQueued = (workspaces: t.Workspace[] | undefined): number | false =>
  workspaces?.some((w) => w.latest_build.status === "pending") ? 5000 : false;

const templateActions = ["use", "update", "delete", "share"] as const;

export const queries = {
  me: () => ask(["me"], "users/{user}", { user: "me" }),
  firstUser: () =>
    queryOptions({
      queryKey: ["first-user"],
      queryFn: ({ signal }) =>
        get("users/first", { signal }).then(
          () => true,
          (err) => {
            if (gone(err)) return false;
            throw err;
          },
        ),
    }),
  authMethods: () => ask(["auth-methods"], "users/authmethods"),
  appearance: () => ask(["appearance"], "appearance"),
  buildInfo: () => ask(["buildinfo"], "buildinfo"),
  externalAgent: (w: t.Workspace, agent: string) =>
    ask(
      ["external-agent", w.id, agent, w.latest_build.id],
      "workspaces/{workspace}/external-agent/{workspaceagent}/credentials",
      { workspace: w.id, workspaceagent: agent },
    ),
  deploymentConfig: () => ask(["deployment-config"], "deployment/config"),
  entitlements: () => ask(["entitlements"], "entitlements"),
  sshConfig: () => ask(["sshconfig"], "deployment/ssh"),
  appsHost: () => ask(["appshost"], "applications/host"),

  userStatusCounts: () =>
    ask(["user-status-counts"], "insights/user-status-counts", {
      query: { timezone: Intl.DateTimeFormat().resolvedOptions().timeZone },
    }),
  audit: (search: string, page: number) =>
    ask(["audit", search, page], "audit", { query: { q: search, limit: logPageSize, offset: page * logPageSize } }),
  connectionLog: (search: string, page: number) =>
    ask(["connectionlog", search, page], "connectionlog", {
      query: { q: search, limit: logPageSize, offset: page * logPageSize },
    }),

  workspaces: (search: string, sort = "", page = 0) =>
    ask(["workspaces", "list", search, sort, page], "workspaces", {
      query: { q: search, sort, limit: pageSize, offset: page * pageSize },
    }),
  workspace: (owner: string, name: string) =>
    ask(["workspaces", "one", owner, name], "users/{user}/workspace/{workspacename}", {
      user: owner,
      workspacename: name,
    }),
  build: (owner: string, name: string, number: number) =>
    ask(["workspaces", "build", owner, name, number], "users/{user}/workspace/{workspacename}/builds/{buildnumber}", {
      user: owner,
      workspacename: name,
      buildnumber: number,
    }),
  buildByID: (id: string) =>
    ask(["workspaces", "build-by-id", id], "workspacebuilds/{workspacebuild}", { workspacebuild: id }),
  buildParameters: (build: string) =>
    ask(["workspaces", "parameters", build], "workspacebuilds/{workspacebuild}/parameters", { workspacebuild: build }),
  buildTimings: (build: string) =>
    ask(["workspaces", "timings", build], "workspacebuilds/{workspacebuild}/timings", { workspacebuild: build }),
  // at is the build and its status: each leaves another state.
  workspaceStates: (workspace: string, at: string) =>
    ask(["workspaces", "states", workspace, at], "workspaces/{workspace}/states", { workspace }),
  organizationSharing: (organization: string) =>
    ask(["organization-sharing", organization], "organizations/{organization}/settings/workspace-sharing", {
      organization,
    }),
  workspaceSharing: (workspace: string) =>
    ask(["workspaces", "sharing", workspace], "workspaces/{workspace}/acl", { workspace }),
  portShares: (workspace: string) =>
    ask(["workspaces", "port-shares", workspace], "workspaces/{workspace}/port-share", { workspace }),
  quota: (organization: string, user: string) =>
    ask(["workspaces", "quota", organization, user], "organizations/{organization}/members/{user}/workspace-quota", {
      organization,
      user,
    }),
  ports: (agent: string) =>
    ask(["ports", agent], "workspaceagents/{workspaceagent}/listening-ports", { workspaceagent: agent }),
  containers: (agent: string) =>
    ask(["containers", agent], "workspaceagents/{workspaceagent}/containers", { workspaceagent: agent }),

  templates: (sort: t.TemplateOrder | "" = "") =>
    ask(["templates", "list", sort], "templates", { query: { sort: sort || undefined } }),
  // The template with a reference in an address: its id, or its name in an organization, by default the default one.
  template: (ref: string, organization = standard) =>
    isID(ref)
      ? ask(["templates", "one", ref], "templates/{template}", { template: ref })
      : ask(["templates", "one", ref, organization], "organizations/{organization}/templates/{templatename}", {
          organization,
          templatename: ref,
        }),
  versionByName: (template: string, name: string) =>
    ask(["templates", "version", template, name], "templates/{template}/versions/{versionname}", {
      template,
      versionname: name,
    }),
  version: (id: string) =>
    ask(["templates", "version", id], "templateversions/{templateversion}", { templateversion: id }),
  versionResources: (id: string) =>
    ask(["templates", "resources", id], "templateversions/{templateversion}/resources", { templateversion: id }),
  variables: (id: string) =>
    ask(["templates", "variables", id], "templateversions/{templateversion}/variables", { templateversion: id }),
  parameters: (id: string) =>
    ask(["templates", "parameters", id], "templateversions/{templateversion}/rich-parameters", { templateversion: id }),
  autofill: (user: string, template: string) =>
    ask(["templates", "autofill", user, template], "users/{user}/autofill-parameters", {
      user,
      query: { template_id: template },
    }),
  presets: (id: string) =>
    ask(["templates", "presets", id], "templateversions/{templateversion}/presets", { templateversion: id }),
  templateByID: (id: string) => ask(["templates", "id", id], "templates/{template}", { template: id }),
  templatePrebuilds: (template: string) =>
    ask(["templates", "prebuilds", template], "templates/{template}/prebuilds", { template }),
  templateInsights: (template: string, since: string, until: string) =>
    ask(["insights", template, since], "insights/templates", {
      query: { template_ids: template, start_time: since, end_time: until, interval: "day" },
    }),
  userActivity: (template: string, since: string, until: string) =>
    ask(["insights", "users", template, since], "insights/user-activity", {
      query: { template_ids: template, start_time: since, end_time: until },
    }),
  userLatency: (template: string, since: string, until: string) =>
    ask(["insights", "latency", template, since], "insights/user-latency", {
      query: { template_ids: template, start_time: since, end_time: until },
    }),
  templateRights: (template: string) =>
    ask(["templates", "rights", template], "templates/{template}/acl", { template }),
  // What the signed-in user may do with a template.
  templatePermissions: (template: string) =>
    may(
      ["templates", "permissions", template],
      Object.fromEntries(
        templateActions.map((action) => [
          action,
          { object: { resource_type: "template", resource_id: template }, action },
        ]),
      ),
    ),
  examples: () => ask(["templates", "examples"], "templates/examples"),

  daemons: (name?: string) =>
    ask(["provisioners", "daemons", name], "organizations/{organization}/provisionerdaemons", {
      organization: name ?? standard,
    }),
  provisionerKeys: (name?: string) =>
    ask(["provisioners", "keys", name], "organizations/{organization}/provisionerkeys", {
      organization: name ?? standard,
    }),
  workspaceProxies: () => ask(["regions", "proxies"], "workspaceproxies"),

  organizations: () => followed(ask(["organizations", "list"], "organizations")),
  organization: (name: string) =>
    followed(ask(["organizations", "one", name], "organizations/{organization}", { organization: name })),
  // What the user may do in an organization: an answer to each check.
  mayIn: (organization: string, checks: Checks) => followed(may(["organizations", "may", organization], checks)),
  mayAnywhere: () => may(["organizations", "mayAnywhere"], anywhere),
  mayCreateOrganizations: () =>
    may(["organizations", "mayCreate"], { create: { action: "create", object: { resource_type: "organization" } } }),
  members: (name: string, search: string, page: number) =>
    followed(
      ask(["organizations", "members", name, search, page], "organizations/{organization}/paginated-members", {
        organization: name,
        query: { q: containing(search), ...memberPage(page) },
      }),
    ),
  suggestedMembers: (name: string, search: string) =>
    ask(["organizations", "suggested", name, search], "organizations/{organization}/paginated-members", {
      organization: name,
      query: { q: containing(search), limit: suggestions },
    }),
  suggestedUsers: (search: string) =>
    ask(["users", "suggested", search], "users", { query: { q: containing(search), limit: suggestions } }),
  roles: (name: string) =>
    followed(
      ask(["organizations", "roles", name], "organizations/{organization}/members/roles", { organization: name }),
    ),
  groups: (name: string) =>
    followed(ask(["organizations", "groups", name], "organizations/{organization}/groups", { organization: name })),
  // The group with a name or an id. No group is named like an id.
  group: (name: string, group: string) =>
    followed(
      isID(group)
        ? ask(["organizations", "group", name, group], "groups/{group}", { group })
        : ask(["organizations", "group", name, group], "organizations/{organization}/groups/{groupname}", {
            organization: name,
            groupname: group,
          }),
    ),
  groupMembers: (group: string, page: number) =>
    followed(
      ask(["organizations", "groupMembers", group, page], "groups/{group}/members", { group, query: memberPage(page) }),
    ),

  invitations: () => ask(["invitations"], "users/{user}/invitations", { user: "me" }),
  siteRoles: () => ask(["users", "roles"], "users/roles"),
  connectionTypes: () => ask(["connection-types"], "users/{user}/connection-types", { user: "me" }),
  preferences: () => ask(["preferences"], "users/{user}/preferences", { user: "me" }),
  userAppearance: () => ask(["user-appearance"], "users/{user}/appearance", { user: "me" }),
  quietHours: () => ask(["quiet-hours"], "users/{user}/quiet-hours", { user: "me" }),
  tokenConfig: () => ask(["tokens", "config"], "users/{user}/keys/tokens/tokenconfig", { user: "me" }),
  secrets: () => ask(["secrets"], "users/{user}/secrets", { user: "me" }),
  sshKeys: () => ask(["sshkeys"], "users/{user}/ssh-keys", { user: "me" }),
  sshGateway: () => ask(["sshgateway"], "deployment/ssh-gateway"),
  sshHostCA: () => ask(["sshhostca"], "deployment/ssh-host-ca"),
  devices: () => ask(["devices"], "users/{user}/devices", { user: "me" }),
  wireguardGateway: () => ask(["wggateway"], "deployment/wireguard-gateway"),
  sshKey: () => ask(["sshkey"], "users/{user}/gitsshkey", { user: "me" }),
  externalAuths: () => ask(["external-auth", "list"], "external-auth"),
  externalAuth: (id: string) => ask(["external-auth", "one", id], "external-auth/{externalauth}", { externalauth: id }),
  logins: (version: string) =>
    ask(["external-auth", "version", version], "templateversions/{templateversion}/external-auth", {
      templateversion: version,
    }),
  inbox: (status: "all" | "unread") =>
    ask(["inbox", "newest", status], "notifications/inbox", { query: { format: "plaintext", read_status: status } }),
  inboxPages: () =>
    infiniteQueryOptions({
      queryKey: ["inbox", "pages"],
      initialPageParam: "",
      queryFn: ({ pageParam, signal }) =>
        get("notifications/inbox", { query: { format: "plaintext", starting_before: pageParam || undefined }, signal }),
      getNextPageParam: ({ notifications }) =>
        notifications.length < inboxPageSize ? undefined : notifications.at(-1)?.id,
    }),
  webhooks: () => ask(["webhooks"], "webhooks"),
  notificationSettings: () => ask(["notifications", "settings"], "notifications/settings"),
  notificationMethods: () => ask(["notifications", "methods"], "notifications/dispatch-methods"),
  notificationTemplates: () => ask(["notifications", "templates"], "notifications/templates/system"),
  notificationPreferences: () =>
    ask(["notifications", "preferences"], "users/{user}/notifications/preferences", { user: "me" }),
  health: () => ask(["health"], "debug/health"),
  mesh: () => ask(["mesh"], "mesh/peers"),
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

// listed is a page of workspaces as a list shows it: with places in the queue that stay current.
export const listed = (search: string, sort = "", page = 0) => ({
  ...queries.workspaces(search, sort, page),
  refetchInterval: ({ state }: { state: { data?: { workspaces: t.Workspace[] } | undefined } }) =>
    whileQueued(state.data?.workspaces),
});
