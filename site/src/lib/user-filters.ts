// What the list of users can be narrowed to, as the page's address keeps it and as the server searches for it.

export interface UserFilters {
  role: string;
  status: string;
  login: string;
  organization: string; // a name
  seen: string;
}

export type UserFilter = keyof UserFilters;

type Choice = [value: string, label: string];

// The first choice of each is all users.
export const choices: Record<Exclude<UserFilter, "organization">, Choice[]> = {
  role: [
    ["", "All roles"],
    ["owner", "Owner"],
    ["user-admin", "User admin"],
    ["template-admin", "Template admin"],
    ["auditor", "Auditor"],
    ["member", "Member only"],
  ],
  status: [
    ["", "All statuses"],
    ["active", "Active"],
    ["dormant", "Dormant"],
    ["suspended", "Suspended"],
  ],
  login: [
    ["", "All sign-ins"],
    ["password", "Password"],
    ["oidc", "OpenID Connect"],
    ["github", "GitHub"],
    ["none", "Tokens only"],
  ],
  seen: [
    ["", "Seen at any time"],
    ["hour", "Seen in the last hour"],
    ["week", "Seen in the last 7 days"],
    ["not-month", "Not seen for 30 days"],
    ["not-quarter", "Not seen for 90 days"],
  ],
};

const minute = 60_000; // ms
const hours: Record<string, number> = { hour: 1, week: 7 * 24, "not-month": 30 * 24, "not-quarter": 90 * 24 };

// filtersOf reads the filters from an address. What no filter can be counts as all users.
export function filtersOf(params: URLSearchParams): UserFilters {
  const known = (filter: Exclude<UserFilter, "organization">) => {
    const value = params.get(filter) ?? "";
    return choices[filter].some(([v]) => v === value) ? value : "";
  };
  const organization = params.get("organization") ?? "";
  return {
    role: known("role"),
    status: known("status"),
    login: known("login"),
    organization: /^[\w-]+$/.test(organization) ? organization : "",
    seen: known("seen"),
  };
}

// searchOf is the search for the users whom text and filters describe, of the parameter q. now is in ms; it counts by
// the minute, so that the search stays the same for a while.
export function searchOf(text: string, filters: UserFilters, now: number): string {
  const plain = text.replaceAll('"', "").trim();
  const back = hours[filters.seen];
  const since = back && new Date(Math.floor(now / minute) * minute - back * 60 * minute).toISOString();
  return [
    plain && `search:"${plain}"`,
    filters.role && `role:${filters.role}`,
    filters.status && `status:${filters.status}`,
    filters.login && `login_type:${filters.login}`,
    filters.organization && `organization:${filters.organization}`,
    since && `last_seen_${filters.seen.startsWith("not-") ? "before" : "after"}:${since}`,
  ]
    .filter(Boolean)
    .join(" ");
}
