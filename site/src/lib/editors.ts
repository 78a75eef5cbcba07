// Addresses that open a workspace in an editor on this machine.
import type { SSHConfig, Workspace, WorkspaceAgent } from "~/api/types";

// Editors that run the extension "Coder Remote", beside VS Code and its insiders' edition.
export const derived = [
  { scheme: "cursor", name: "Cursor", icon: "/icon/cursor.svg" },
  { scheme: "windsurf", name: "Windsurf", icon: "/icon/windsurf.svg" },
  { scheme: "vscodium", name: "VSCodium", icon: "/icon/vscodium.svg" },
];

// sshHost is the name of an agent's host in the section that coder config-ssh writes.
export function sshHost(w: Workspace, agent: WorkspaceAgent, mine: boolean, ssh: SSHConfig | undefined): string {
  if (ssh?.hostname_suffix) return `${agent.name}.${w.name}.${w.owner_name}.${ssh.hostname_suffix}`;
  const several = w.latest_build.resources.flatMap((r) => r.agents ?? []).length > 1;
  const short = several ? `${w.name}.${agent.name}` : w.name;
  return `${ssh?.hostname_prefix ?? "coder."}${mine ? short : `${w.owner_name}--${short}`}`;
}

// zedLink opens a host of the SSH configuration. The editor passes it to OpenSSH, which takes a
// leading dash for an option: a host that is not a name opens nothing.
export const zedLink = (host: string, folder: string | undefined) =>
  /^\w[\w.-]*$/.test(host) ? `zed://ssh/${host}${(folder ?? "").split("/").map(encodeURIComponent).join("/")}` : "";

export function editorLink(scheme: string, w: Workspace, agent: WorkspaceAgent, token: string): string {
  const query = new URLSearchParams({
    owner: w.owner_name,
    workspace: w.name,
    agent: agent.name,
    url: location.origin,
    token,
    openRecent: "true",
  });
  if (agent.expanded_directory) query.set("folder", agent.expanded_directory);
  return `${scheme}://coder.coder-remote/open?${query}`;
}

export function jetbrainsLink(w: Workspace, agent: WorkspaceAgent, token: string): string {
  const query = new URLSearchParams({
    url: location.origin,
    token,
    workspace: w.name,
    owner: w.owner_name,
    agent_id: agent.id,
    agent_name: agent.name,
  });
  if (agent.expanded_directory) query.set("folder", agent.expanded_directory);
  return `jetbrains://gateway/coder?${query}`;
}
