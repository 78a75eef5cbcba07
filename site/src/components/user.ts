import { createContext, useContext } from "react";
import type { User } from "~/api/types";

export const UserContext = createContext<User | null>(null);

// useMe is who is signed in.
export function useMe(): User {
  const me = useContext(UserContext);
  if (!me) throw new Error("useMe needs a signed-in user");
  return me;
}

const has = (user: User, ...roles: string[]) => user.roles.some((r) => roles.includes(r.name));

// What to offer. The server enforces what is allowed.
export const isOwner = (user: User) => has(user, "owner");
export const mayEditTemplates = (user: User) => has(user, "owner", "template-admin");
