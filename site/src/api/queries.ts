// Every query of the dashboard and its cache key. A key begins with the kind that events invalidate.
import { infiniteQueryOptions, type QueryClient, queryOptions } from "@tanstack/react-query";
import { ApiError, get, segment, send } from "./client";
import type * as t from "./types";

// orgPath is the API's address of an organization: of the default one without a name.
export const orgPath = (name = "default") => `organizations/${segment(name)}`;

export const org = orgPath();

// Rows per request of a long list. Pages are fetched as the user scrolls.
export const pageSize = 100;

// Rows per page of the audit log and the connection log.
export const logPageSize = 25;

// Rows per page of an organization's or a group's members.
export const memberPageSize = 50;

const memberPage = (page: number) => `limit=${memberPageSize}&offset=${page * memberPageSize}`;

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
  return plain && segment(`search:"${plain}"`);
};

// ask is for queries of one part of the dashboard. Those in this file are in what a browser loads first.
export const ask = <T>(key: readonly unknown[], path: string) =>
  queryOptions({ queryKey: key, queryFn: ({ signal }) => get<T>(path, signal) });

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
    queryFn: () => send<Record<string, boolean>>("POST", "authcheck", { checks } satisfies t.AuthorizationRequest),
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

const templateActions = ["use", "update", "delete", "share"] as const;

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
  appearance: () => ask<t.Appearance>(["appearance"], "appearance"),
  buildInfo: () => ask<t.BuildInfo>(["buildinfo"], "buildinfo"),
  externalAgent: (w: t.Workspace, agent: string) =>
    ask<t.ExternalAgentCredentials>(
      ["external-agent", w.id, agent, w.latest_build.id],
      `workspaces/${w.id}/external-agent/${segment(agent)}/credentials`,
    ),
  deploymentConfig: () => ask<t.DeploymentConfig>(["deployment-config"], "deployment/config"),
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

  workspaces: (search: string, sort = "", page = 0) =>
    ask<t.WorkspacesResponse>(
      ["workspaces", "list", search, sort, page],
      `workspaces?q=${segment(search)}&sort=${segment(sort)}&limit=${pageSize}&offset=${page * pageSize}`,
    ),
  workspace: (owner: string, name: string) =>
    ask<t.Workspace>(["workspaces", "one", owner, name], `users/${segment(owner)}/workspace/${segment(name)}`),
  build: (owner: string, name: string, number: number) =>
    ask<t.WorkspaceBuild>(
      ["workspaces", "build", owner, name, number],
      `users/${segment(owner)}/workspace/${segment(name)}/builds/${number}`,
    ),
  buildByID: (id: string) => ask<t.WorkspaceBuild>(["workspaces", "build-by-id", id], `workspacebuilds/${id}`),
  buildParameters: (build: string) =>
    ask<t.BuildParameter[]>(["workspaces", "parameters", build], `workspacebuilds/${build}/parameters`),
  buildTimings: (build: string) =>
    ask<t.BuildTimings>(["workspaces", "timings", build], `workspacebuilds/${build}/timings`),
  // at is the build and its status: each leaves another state.
  workspaceStates: (workspace: string, at: string) =>
    ask<t.StoredState[]>(["workspaces", "states", workspace, at], `workspaces/${workspace}/states`),
  organizationSharing: (organization: string) =>
    ask<t.WorkspaceSharingSettings>(
      ["organization-sharing", organization],
      `organizations/${segment(organization)}/settings/workspace-sharing`,
    ),
  workspaceSharing: (workspace: string) =>
    ask<t.WorkspaceACL>(["workspaces", "sharing", workspace], `workspaces/${workspace}/acl`),
  portShares: (workspace: string) =>
    ask<t.PortShares>(["workspaces", "port-shares", workspace], `workspaces/${workspace}/port-share`),
  quota: (organization: string, user: string) =>
    ask<t.WorkspaceQuota>(
      ["workspaces", "quota", organization, user],
      `organizations/${organization}/members/${user}/workspace-quota`,
    ),
  ports: (agent: string) =>
    ask<{ ports: t.ListeningPort[] }>(["ports", agent], `workspaceagents/${agent}/listening-ports`),
  containers: (agent: string) => ask<t.AgentContainers>(["containers", agent], `workspaceagents/${agent}/containers`),

  templates: (sort: t.TemplateOrder | "" = "") =>
    ask<t.Template[]>(["templates", "list", sort], `templates${sort && `?sort=${sort}`}`),
  // The template with a reference in an address: its name in the default organization, or its id.
  template: (ref: string) =>
    ask<t.Template>(["templates", "one", ref], isID(ref) ? `templates/${ref}` : `${org}/templates/${segment(ref)}`),
  versionByName: (template: string, name: string) =>
    ask<t.TemplateVersion>(["templates", "version", template, name], `templates/${template}/versions/${segment(name)}`),
  version: (id: string) => ask<t.TemplateVersion>(["templates", "version", id], `templateversions/${id}`),
  versionResources: (id: string) =>
    ask<t.WorkspaceResource[]>(["templates", "resources", id], `templateversions/${id}/resources`),
  variables: (id: string) =>
    ask<t.TemplateVersionVariable[]>(["templates", "variables", id], `templateversions/${id}/variables`),
  parameters: (id: string) =>
    ask<t.TemplateVersionParameter[]>(["templates", "parameters", id], `templateversions/${id}/rich-parameters`),
  autofill: (user: string, template: string) =>
    ask<t.ParameterValue[]>(
      ["templates", "autofill", user, template],
      `users/${segment(user)}/autofill-parameters?template_id=${template}`,
    ),
  presets: (id: string) => ask<t.Preset[]>(["templates", "presets", id], `templateversions/${id}/presets`),
  templateByID: (id: string) => ask<t.Template>(["templates", "id", id], `templates/${id}`),
  templatePrebuilds: (template: string) =>
    ask<t.TemplatePrebuilds[]>(["templates", "prebuilds", template], `templates/${template}/prebuilds`),
  templateInsights: (template: string, since: string, until: string) =>
    ask<t.TemplateInsightsResponse>(
      ["insights", template, since],
      `insights/templates?template_ids=${template}&start_time=${since}&end_time=${until}&interval=day`,
    ),
  userActivity: (template: string, since: string, until: string) =>
    ask<t.UserActivityInsightsResponse>(
      ["insights", "users", template, since],
      `insights/user-activity?template_ids=${template}&start_time=${since}&end_time=${until}`,
    ),
  templateRights: (template: string) =>
    ask<t.TemplateACL>(["templates", "rights", template], `templates/${template}/acl`),
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
  examples: () => ask<t.TemplateExample[]>(["templates", "examples"], "templates/examples"),

  daemons: (name?: string) =>
    ask<t.ProvisionerDaemon[]>(["provisioners", "daemons", name], `${orgPath(name)}/provisionerdaemons`),
  provisionerKeys: (name?: string) =>
    ask<t.ProvisionerKey[]>(["provisioners", "keys", name], `${orgPath(name)}/provisionerkeys`),
  workspaceProxies: () => ask<{ regions: t.WorkspaceProxy[] }>(["regions", "proxies"], "workspaceproxies"),

  organizations: () => followed(ask<t.Organization[]>(["organizations", "list"], "organizations")),
  organization: (name: string) => followed(ask<t.Organization>(["organizations", "one", name], orgPath(name))),
  // What the user may do in an organization: an answer to each check.
  mayIn: (organization: string, checks: Checks) => followed(may(["organizations", "may", organization], checks)),
  mayAnywhere: () => may(["organizations", "mayAnywhere"], anywhere),
  mayCreateOrganizations: () =>
    may(["organizations", "mayCreate"], { create: { action: "create", object: { resource_type: "organization" } } }),
  members: (name: string, search: string, page: number) =>
    followed(
      ask<t.PaginatedMembers>(
        ["organizations", "members", name, search, page],
        `${orgPath(name)}/paginated-members?q=${containing(search)}&${memberPage(page)}`,
      ),
    ),
  suggestedMembers: (name: string, search: string) =>
    ask<t.PaginatedMembers>(
      ["organizations", "suggested", name, search],
      `${orgPath(name)}/paginated-members?q=${containing(search)}&limit=${suggestions}`,
    ),
  suggestedUsers: (search: string) =>
    ask<t.UsersResponse>(["users", "suggested", search], `users?q=${containing(search)}&limit=${suggestions}`),
  roles: (name: string) =>
    followed(ask<t.AssignableRole[]>(["organizations", "roles", name], `${orgPath(name)}/members/roles`)),
  groups: (name: string) => followed(ask<t.Group[]>(["organizations", "groups", name], `${orgPath(name)}/groups`)),
  // The group with a name or an id. No group is named like an id.
  group: (name: string, group: string) =>
    followed(
      ask<t.Group>(
        ["organizations", "group", name, group],
        isID(group) ? `groups/${group}` : `${orgPath(name)}/groups/${segment(group)}`,
      ),
    ),
  groupMembers: (group: string, page: number) =>
    followed(
      ask<t.GroupMembersResponse>(
        ["organizations", "groupMembers", group, page],
        `groups/${group}/members?${memberPage(page)}`,
      ),
    ),

  invitations: () => ask<t.OrganizationInvitation[]>(["invitations"], "users/me/invitations"),
  siteRoles: () => ask<t.AssignableRole[]>(["users", "roles"], "users/roles"),
  connectionTypes: () => ask<t.ConnectionTypes>(["connection-types"], "users/me/connection-types"),
  preferences: () => ask<t.UserPreferences>(["preferences"], "users/me/preferences"),
  userAppearance: () => ask<t.UserAppearance>(["user-appearance"], "users/me/appearance"),
  quietHours: () => ask<t.QuietHours>(["quiet-hours"], "users/me/quiet-hours"),
  tokenConfig: () => ask<t.TokenConfig>(["tokens", "config"], "users/me/keys/tokens/tokenconfig"),
  secrets: () => ask<t.UserSecret[]>(["secrets"], "users/me/secrets"),
  sshKeys: () => ask<t.UserSSHKey[]>(["sshkeys"], "users/me/ssh-keys"),
  sshGateway: () => ask<t.SSHGateway>(["sshgateway"], "deployment/ssh-gateway"),
  sshHostCA: () => ask<t.SSHAuthority>(["sshhostca"], "deployment/ssh-host-ca"),
  devices: () => ask<t.UserDevice[]>(["devices"], "users/me/devices"),
  wireguardGateway: () => ask<t.WireGuardGateway>(["wggateway"], "deployment/wireguard-gateway"),
  sshKey: () => ask<t.GitSSHKey>(["sshkey"], "users/me/gitsshkey"),
  externalAuths: () => ask<t.ExternalAuths>(["external-auth", "list"], "external-auth"),
  externalAuth: (id: string) => ask<t.ExternalAuth>(["external-auth", "one", id], `external-auth/${segment(id)}`),
  logins: (version: string) =>
    ask<t.TemplateVersionExternalAuth[]>(
      ["external-auth", "version", version],
      `templateversions/${version}/external-auth`,
    ),
  inbox: (status: "all" | "unread") =>
    ask<t.ListInboxNotificationsResponse>(
      ["inbox", "newest", status],
      `notifications/inbox?format=plaintext&read_status=${status}`,
    ),
  inboxPages: () =>
    infiniteQueryOptions({
      queryKey: ["inbox", "pages"],
      initialPageParam: "",
      queryFn: ({ pageParam, signal }) =>
        get<t.ListInboxNotificationsResponse>(
          `notifications/inbox?format=plaintext${pageParam && `&starting_before=${pageParam}`}`,
          signal,
        ),
      getNextPageParam: ({ notifications }) =>
        notifications.length < inboxPageSize ? undefined : notifications.at(-1)?.id,
    }),
  webhooks: () => ask<t.Webhook[]>(["webhooks"], "webhooks"),
  webhookDeliveries: (id: string) =>
    ask<t.WebhookDelivery[]>(["webhooks", "deliveries", id], `webhooks/${id}/deliveries`),
  notificationSettings: () => ask<t.NotificationsSettings>(["notifications", "settings"], "notifications/settings"),
  notificationMethods: () =>
    ask<t.NotificationMethodsResponse>(["notifications", "methods"], "notifications/dispatch-methods"),
  notificationTemplates: () =>
    ask<t.NotificationTemplate[]>(["notifications", "templates"], "notifications/templates/system"),
  notificationPreferences: () =>
    ask<t.NotificationPreference[]>(["notifications", "preferences"], "users/me/notifications/preferences"),
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
