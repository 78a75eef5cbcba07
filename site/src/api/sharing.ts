// With whom templates and workspaces can be shared.
import { get, segment } from "./client";
import type { ACLAvailable, Group, MinimalUser, PaginatedMembers } from "./types";

export interface Candidates {
  users: MinimalUser[];
  groups: Group[];
}

// FindCandidates finds users and groups by name; "" finds the first of all.
export type FindCandidates = (search: string, signal: AbortSignal) => Promise<Candidates>;

export const candidatesOfTemplate =
  (template: string): FindCandidates =>
  (search, signal) =>
    get<ACLAvailable>(`templates/${template}/acl/available?q=${segment(search)}`, signal);

// candidatesOfWorkspace leaves out the owner, who has access anyway.
export const candidatesOfWorkspace =
  (organization: string, owner: string): FindCandidates =>
  async (search, signal) => {
    const at = `organizations/${organization}`;
    const [page, groups] = await Promise.all([
      get<PaginatedMembers>(`${at}/paginated-members?limit=50&q=${segment(search)}`, signal),
      get<Group[]>(`${at}/groups`, signal),
    ]);
    const wanted = search.toLowerCase();
    return {
      users: page.members
        .filter((m) => m.user_id !== owner)
        .map((m) => ({ id: m.user_id, username: m.username, name: m.name ?? "" })),
      groups: groups.filter((g) => `${g.name} ${g.display_name}`.toLowerCase().includes(wanted)),
    };
  };
