// With whom templates and workspaces can be shared.
import { get } from "./client";
import { containing } from "./queries";
import type { Group, MinimalUser } from "./types";

export interface Candidates {
  users: MinimalUser[];
  groups: Group[];
}

// FindCandidates finds users and groups by name; "" finds the first of all.
export type FindCandidates = (search: string, signal: AbortSignal) => Promise<Candidates>;

export const candidatesOfTemplate =
  (template: string): FindCandidates =>
  (search, signal) =>
    get("templates/{template}/acl/available", { template, query: { q: containing(search) }, signal });

// candidatesOfWorkspace leaves out the owner, who has access anyway.
export const candidatesOfWorkspace =
  (organization: string, owner: string): FindCandidates =>
  async (search, signal) => {
    const q = containing(search);
    const [page, groups] = await Promise.all([
      get("organizations/{organization}/paginated-members", { organization, query: { limit: 50, q }, signal }),
      get("organizations/{organization}/groups", { organization, query: { q }, signal }),
    ]);
    return {
      users: page.members
        .filter((m) => m.user_id !== owner)
        .map((m) => ({ id: m.user_id, username: m.username, name: m.name ?? "" })),
      groups,
    };
  };
