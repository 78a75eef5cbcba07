// The dashboard's own addresses, in one place.
import type { Workspace } from "~/api/types";

const s = encodeURIComponent;

export const paths = {
  workspaces: "/workspaces",
  workspace: (owner: string, name: string) => `/@${s(owner)}/${s(name)}`,
  workspaceSettings: (owner: string, name: string) => `/@${s(owner)}/${s(name)}?tab=settings`,
  files: (owner: string, name: string, agent = "", path = "") =>
    `/@${s(owner)}/${s(name)}?${new URLSearchParams({ tab: "files", ...(agent && { agent }), ...(path && { path }) })}`,
  build: (owner: string, name: string, number: number) => `/@${s(owner)}/${s(name)}/builds/${number}`,
  terminal: (owner: string, name: string, agent: string) => `/@${s(owner)}/${s(name)}.${s(agent)}/terminal`,
  app: (owner: string, name: string, agent: string, slug: string) =>
    `/@${s(owner)}/${s(name)}.${s(agent)}/apps/${s(slug)}/`,
  templates: "/templates",
  newTemplate: "/templates/new",
  template: (name: string) => `/templates/${s(name)}`,
  version: (template: string, version: string) => `/templates/${s(template)}/versions/${s(version)}`,
  editVersion: (template: string, version: string) => `/templates/${s(template)}/versions/${s(version)}/edit`,
  create: (template: string) => `/templates/${s(template)}/workspace`,
  organizations: "/organizations",
  newOrganization: "/organizations/new",
  organization: (name: string, tab = "") => `/organizations/${s(name)}${tab && `/${tab}`}`,
  role: (organization: string, name: string) => `/organizations/${s(organization)}/roles/${s(name)}`,
  group: (organization: string, name: string) => `/organizations/${s(organization)}/groups/${s(name)}`,
  account: "/account",
  notifications: "/notifications",
  deployment: "/deployment",
  deploymentNotifications: "/deployment/notifications",
  appearance: "/deployment/appearance",
  deploymentSettings: "/deployment/settings",
  webhooks: "/deployment/webhooks",
  regions: "/deployment/regions",
  notification: (id: string) => `/notifications#${s(id)}`,
  externalAuth: (id: string) => `/external-auth/${s(id)}`,
  externalAuthLink: (id: string) => `/external-auth/${s(id)}/callback`, // the server's: leads to the service and back
  downloads: "/downloads",
  docs: (page = "") => `/docs${page && `/${page}`}`,
  forgot: "/reset-password",
  // The server's: these lead to the identity provider and back.
  signIn: { oidc: "/api/v2/users/oidc/callback", github: "/api/v2/users/oauth2/github/callback" },
  login: (back: string) => (back === "/" || back.startsWith("/login") ? "/login" : `/login?redirect=${s(back)}`),
};

// importing is the page that follows a version's import. A new template has a name, an existing one its reference.
export function importing(version: string, name: string, template: string | undefined): string {
  return `${paths.newTemplate}?${new URLSearchParams({ version, ...(template ? { template } : { name }) })}`;
}

export const pathOf = (w: Workspace) => paths.workspace(w.owner_name, w.name);

// decoded is a segment of an address as text. A segment that is not encoded correctly stays as it is.
export function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

// safeReturn is the page to open after a sign-in. It is always on this site.
export function safeReturn(search: string): string {
  const target = new URLSearchParams(search).get("redirect") ?? "/";
  try {
    const url = new URL(target, "https://here.invalid");
    if (url.origin !== "https://here.invalid") return "/";
    return url.pathname + url.search + url.hash;
  } catch {
    return "/";
  }
}
