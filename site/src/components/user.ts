import { createContext, useContext } from "react";
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
export const mayReadLogs = (user: User) => has(user, "owner", "auditor");
