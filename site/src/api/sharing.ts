// With whom templates and workspaces can be shared.
import { get } from "./client";
import { containing } from "./queries";
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
    get<ACLAvailable>(`templates/${template}/acl/available?q=${containing(search)}`, signal);

// candidatesOfWorkspace leaves out the owner, who has access anyway.
export const candidatesOfWorkspace =
  (organization: string, owner: string): FindCandidates =>
  async (search, signal) => {
    const at = `organizations/${organization}`;
    const [page, groups] = await Promise.all([
      get<PaginatedMembers>(`${at}/paginated-members?limit=50&q=${containing(search)}`, signal),
      get<Group[]>(`${at}/groups?q=${containing(search)}`, signal),
    ]);
    return {
      users: page.members
        .filter((m) => m.user_id !== owner)
        .map((m) => ({ id: m.user_id, username: m.username, name: m.name ?? "" })),
      groups,
    };
  };
