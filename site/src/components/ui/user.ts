import { useQuery } from "@tanstack/react-query";
import { createContext, useContext } from "react";
import { queries } from "~/api/queries";
import type { User } from "~/api/types";

export const UserContext = createContext<User | null>(null);

// useMe returns the signed-in user.
export function useMe(): User {
  const me = useContext(UserContext);
  if (!me) throw new Error("useMe needs a signed-in user");
  return me;
}

const has = (user: User, ...roles: string[]) => user.roles.some((r) => roles.includes(r.name));

// These decide what pages offer. The server enforces permissions.
export const isOwner = (user: User) => has(user, "owner");
export const mayEditTemplates = (user: User) => has(user, "owner", "template-admin");
export const mayReadUsers = (user: User) => has(user, "owner", "user-admin", "auditor");
// The server refuses changes of accounts with permissions that the user lacks.
export const mayManage = (user: User, other: User) =>
  isOwner(user) || (has(user, "user-admin") && other.roles.every((r) => has(user, r.name)));
export const mayCreateUsers = (user: User) => has(user, "owner", "user-admin");
export const mayReadLogs = (user: User) => has(user, "owner", "auditor");

const nothing = { use: false, update: false, delete: false, share: false };

// useTemplatePermissions returns what the user may do with a template: by role, or because it is shared with them.
export const useTemplatePermissions = (template: string | undefined) =>
  useQuery({ ...queries.templatePermissions(template ?? ""), enabled: template !== undefined }).data ?? nothing;
