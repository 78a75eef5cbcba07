// Addresses that open a workspace in an editor on this machine.
import type { Workspace, WorkspaceAgent } from "~/api/types";

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
