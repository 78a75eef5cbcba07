// The settings of sync: which claims of the identity provider decide about memberships.
import { queryOptions } from "@tanstack/react-query";
import { get, send } from "./client";
import { ask } from "./queries";
import type { GroupSyncSettings, OrganizationSyncSettings, RoleSyncSettings } from "./types";

// Settings are read when a form opens, and not again while it is open.
const once = { gcTime: 0, refetchOnWindowFocus: false, refetchOnReconnect: false } as const;

// Claims are what users had at sign-in: the names of claims, and the values of one. The users are those of an
// organization, or all.
const claims = (organization?: string) => ({
  fields: () => ({
    ...(organization === undefined
      ? ask(["sync", "fields"], "settings/idpsync/available-fields")
      : ask(["sync", organization, "fields"], "organizations/{organization}/settings/idpsync/available-fields", {
          organization,
        })),
    staleTime: 0,
  }),
  values: (field: string) => ({
    ...(organization === undefined
      ? ask(["sync", "values", field], "settings/idpsync/field-values", { query: { claimField: field } })
      : ask(["sync", organization, "values", field], "organizations/{organization}/settings/idpsync/field-values", {
          organization,
          query: { claimField: field },
        })),
    staleTime: 0,
  }),
});

// SyncPlace is where the API keeps settings of one kind.
export interface SyncPlace<T> extends ReturnType<typeof claims> {
  save: (settings: T) => Promise<T>;
}

export const organizationSync = {
  ...claims(),
  settings: () =>
    queryOptions({
      queryKey: ["sync", "organizations"],
      queryFn: ({ signal }) => get("settings/idpsync/organization", { signal }),
      ...once,
    }),
  save: (body: OrganizationSyncSettings) => send("PATCH settings/idpsync/organization", { body }),
};

export const groupSync = (organization: string) => ({
  ...claims(organization),
  settings: () =>
    queryOptions({
      queryKey: ["sync", organization, "groups"],
      queryFn: ({ signal }) => get("organizations/{organization}/settings/idpsync/groups", { organization, signal }),
      ...once,
    }),
  save: (body: GroupSyncSettings) =>
    send("PATCH organizations/{organization}/settings/idpsync/groups", { organization, body }),
});

export const roleSync = (organization: string) => ({
  ...claims(organization),
  settings: () =>
    queryOptions({
      queryKey: ["sync", organization, "roles"],
      queryFn: ({ signal }) => get("organizations/{organization}/settings/idpsync/roles", { organization, signal }),
      ...once,
    }),
  save: (body: RoleSyncSettings) =>
    send("PATCH organizations/{organization}/settings/idpsync/roles", { organization, body }),
});

// maySync asks whether the user may read and change organization sync.
export const maySync = () =>
  queryOptions({
    queryKey: ["sync", "may"],
    queryFn: () =>
      send("POST authcheck", {
        body: { checks: { update: { action: "update", object: { resource_type: "deployment_config" } } } },
      }),
  });
