// The dashboard's own addresses, in one place.
import type { Workspace } from "~/api/types";

const s = encodeURIComponent;

export const paths = {
  workspaces: "/workspaces",
  workspace: (owner: string, name: string) => `/@${s(owner)}/${s(name)}`,
  build: (owner: string, name: string, number: number) => `/@${s(owner)}/${s(name)}/builds/${number}`,
  terminal: (owner: string, name: string, agent: string) => `/@${s(owner)}/${s(name)}.${s(agent)}/terminal`,
  app: (owner: string, name: string, agent: string, slug: string) =>
    `/@${s(owner)}/${s(name)}.${s(agent)}/apps/${s(slug)}/`,
  templates: "/templates",
  newTemplate: "/templates/new",
  template: (name: string) => `/templates/${s(name)}`,
  version: (template: string, version: string) => `/templates/${s(template)}/versions/${s(version)}`,
  create: (template: string) => `/templates/${s(template)}/workspace`,
  account: "/account",
  externalAuth: (id: string) => `/external-auth/${s(id)}`,
  externalAuthLink: (id: string) => `/external-auth/${s(id)}/callback`, // the server's: leads to the service and back
  forgot: "/reset-password",
  // The server's: these lead to the identity provider and back.
  signIn: { oidc: "/api/v2/users/oidc/callback", github: "/api/v2/users/oauth2/github/callback" },
  login: (back: string) => (back === "/" || back.startsWith("/login") ? "/login" : `/login?redirect=${s(back)}`),
};

export const pathOf = (w: Workspace) => paths.workspace(w.owner_name, w.name);

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
