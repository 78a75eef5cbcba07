// The settings of sync: which claims of the identity provider decide about memberships.
import { queryOptions } from "@tanstack/react-query";
import { get, segment, send } from "./client";
import type { AuthorizationRequest } from "./types";

// organizationSync is where the API keeps the settings of organization sync; syncOf, where it keeps those of an
// organization.
export const organizationSync = { path: "settings/idpsync/organization", claims: "settings/idpsync" };

export const syncOf = (organization: string, kind: "groups" | "roles") => ({
  path: `organizations/${organization}/settings/idpsync/${kind}`,
  claims: `organizations/${organization}/settings/idpsync`,
});

export type SyncPlace = typeof organizationSync;

// Settings are read when a form opens, and not again while it is open.
const once = { gcTime: 0, refetchOnWindowFocus: false, refetchOnReconnect: false } as const;

export const syncQueries = {
  settings: <T>({ path }: SyncPlace) =>
    queryOptions({ queryKey: ["sync", path], queryFn: ({ signal }) => get<T>(path, signal), ...once }),
  // The names of the claims that users had at sign-in.
  fields: ({ claims }: SyncPlace) =>
    queryOptions({
      queryKey: ["sync", claims, "fields"],
      queryFn: ({ signal }) => get<string[]>(`${claims}/available-fields`, signal),
      staleTime: 0,
    }),
  // The values that a claim had.
  values: ({ claims }: SyncPlace, field: string) =>
    queryOptions({
      queryKey: ["sync", claims, "values", field],
      queryFn: ({ signal }) => get<string[]>(`${claims}/field-values?claimField=${segment(field)}`, signal),
      staleTime: 0,
    }),
  // Whether the user may read and change organization sync.
  may: () =>
    queryOptions({
      queryKey: ["sync", "may"],
      queryFn: () =>
        send<{ update: boolean }>("POST", "authcheck", {
          checks: { update: { action: "update", object: { resource_type: "deployment_config" } } },
        } satisfies AuthorizationRequest),
    }),
};
