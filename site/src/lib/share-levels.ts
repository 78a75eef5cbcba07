import type { AppShare } from "~/api/types";

// Levels of sharing, each open to more users than the one before.
export const levels: { level: AppShare; who: string }[] = [
  { level: "owner", who: "Users who can connect" },
  { level: "organization", who: "Members of the organization" },
  { level: "authenticated", who: "All signed-in users" },
  { level: "public", who: "Anyone with the link, without signing in" },
];
