// Addresses that lead out of the dashboard: into apps, ports and editors.
import type { Workspace, WorkspaceAgent, WorkspaceApp } from "~/api/types";
import { paths } from "./path";
import type { Region } from "./region";

// below puts a name under the host for apps of a region or the server, which is written *.apps.example.com or
// *-apps.example.com. Only the server's may lack the port of its address.
function below(host: string, region: Region | null, name: string): string {
  if (region?.wildcard) return `${new URL(region.url).protocol}//${region.wildcard.replace("*", name)}`;
  const port = host.includes(":") || !location.port ? "" : `:${location.port}`;
  return `${location.protocol}//${host.replace("*", name)}${port}`;
}

export function portLink(
  w: Workspace,
  agent: WorkspaceAgent,
  port: number,
  host: string,
  region: Region | null = null,
): string {
  return `${below(host, region, `${port}--${agent.name}--${w.name}--${w.owner_name}`)}/`;
}

// Schemes that an external app may have: websites and other hosts, and programs on this machine that open workspaces.
// Everything else could run in the dashboard or reach what no template should. The command line has the same.
const hostSchemes = new Set(["http", "https", "mailto", "ssh", "sftp", "rdp", "vnc"]);
const programSchemes = new Set([
  "coder",
  "vscode",
  "vscode-insiders",
  "vscodium",
  "cursor",
  "windsurf",
  "zed",
  "jetbrains",
  "jetbrains-gateway",
  "fleet",
  "kiro",
  "antigravity",
  "trae",
  "positron",
]);

// schemeOf reads an address as the browser will, which ignores tabs and line breaks in it; "" if it is not an address.
function schemeOf(app: WorkspaceApp): string {
  try {
    return new URL(app.url ?? "", location.href).protocol.slice(0, -1);
  } catch {
    return "";
  }
}

// appLink is where an app opens, at a region or else the server; "" when it needs a host of its own and neither has
// one.
export function appLink(
  w: Workspace,
  agent: WorkspaceAgent,
  app: WorkspaceApp,
  host: string,
  region: Region | null = null,
): string {
  if (app.external) {
    const scheme = schemeOf(app);
    return hostSchemes.has(scheme) || programSchemes.has(scheme) ? (app.url ?? "") : "";
  }
  if (app.command)
    return `${paths.terminal(w.owner_name, w.name, agent.name)}?command=${encodeURIComponent(app.command)}`;
  if (!app.subdomain) return (region?.url ?? "") + paths.app(w.owner_name, w.name, agent.name, app.slug);
  if (!host && !region?.wildcard) return "";
  return `${below(host, region, app.subdomain_name || `${app.slug}--${agent.name}--${w.name}--${w.owner_name}`)}/`;
}

// The placeholder for a session token in the address of an external app. Only programs on this machine get a token:
// with any other scheme it would go to a host that the address names.
const tokenMark = "$SESSION_TOKEN";

export const wantsToken = (app: WorkspaceApp) =>
  app.external && (app.url ?? "").includes(tokenMark) && programSchemes.has(schemeOf(app));

export const withToken = (link: string, token: string) => link.replaceAll(tokenMark, encodeURIComponent(token));

/**
 * opens returns what a click on an app's link does: apps whose template asks for a slim window open without the
 * browser's own controls. Apps elsewhere, and clicks with a key held down, open as links do.
 */
export const opens =
  (app: WorkspaceApp, link: string) =>
  (e: { ctrlKey: boolean; metaKey: boolean; shiftKey: boolean; preventDefault: () => void }) => {
    if (app.open_in !== "slim-window" || app.external || e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    window.open(link, "_blank", "popup,noopener,noreferrer,width=1100,height=760");
  };

/** plainText takes links, emphasis and code marks out of Markdown, for places that show text only. */
export const plainText = (markdown: string) =>
  markdown
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/(\*\*|__|`)(.+?)\1/g, "$2")
    .replace(/^#{1,6} /gm, "");
