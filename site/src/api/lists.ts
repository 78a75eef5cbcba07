// Queries of long lists, one page each. Only the pages that show them load this.
import { infiniteQueryOptions } from "@tanstack/react-query";
import { get } from "./client";
import { ask, containing, standard } from "./queries";
import type * as t from "./types";

// Rows of one page.
export const rowsPerPage = 50;

// How many owners an input offers.
const suggestions = 10;

const wholePage = (page: number) => ({ limit: rowsPerPage, offset: page * rowsPerPage });

// Some answers have no count. Requests for those ask for one row more than a page shows: it tells that there is a next
// page.
const oneMore = (page: number) => ({ limit: rowsPerPage + 1, offset: page * rowsPerPage });

// pageOf returns the rows of such a page, and how many rows there are as far as this page knows.
export const pageOf = <T>(rows: T[] = [], page: number) => ({
  rows: rows.slice(0, rowsPerPage),
  count: page * rowsPerPage + rows.length,
});

export const lists = {
  users: (q: string, sort: t.UserOrder, page: number) =>
    ask(["users", "list", q, sort, page], "users", { query: { q, sort, ...wholePage(page) } }),
  // All users that a search finds, by pages of what the server gives at most. It is asked once, when all are selected.
  allUsers: async (q: string, sort: t.UserOrder): Promise<t.User[]> => {
    const all = new Map<string, t.User>();
    for (let offset = 0; ;) {
      const { users, count } = await get("users", { query: { q, sort, limit: 100, offset } });
      for (const u of users) all.set(u.id, u);
      offset += users.length;
      if (users.length === 0 || offset >= count) return [...all.values()];
    }
  },
  // The members of an organization for whom the user may create workspaces.
  owners: (organization: string, search: string) =>
    ask(
      ["users", "owners", organization, search],
      "organizations/{organization}/members/{user}/workspaces/available-users",
      { organization, user: "me", query: { q: containing(search), limit: suggestions } },
    ),
  // The workspaces of an owner whose names contain one.
  named: (owner: string, name: string) =>
    ask(["workspaces", "named", owner, name], "workspaces", {
      query: { q: `owner:${owner} name:${name}`, limit: 100 },
    }),
  // Jobs that run. They are as few as the provisioners.
  runningJobs: (organization: string | undefined) =>
    ask(["jobs", "running", organization], "organizations/{organization}/provisionerjobs", {
      organization: organization ?? standard,
      query: { status: "running,canceling", limit: 1000 },
    }),
  // Jobs that wait, or all.
  jobs: (organization: string | undefined, status: "pending" | "", page: number) =>
    ask(["jobs", "list", organization, status, page], "organizations/{organization}/provisionerjobs", {
      organization: organization ?? standard,
      query: { status, ...oneMore(page) },
    }),
  builds: (workspace: string, page: number) =>
    ask(["workspaces", "builds", workspace, page], "workspaces/{workspace}/builds", {
      workspace,
      query: oneMore(page),
    }),
  // Newest first. archived: also the archived ones.
  versions: (template: string, search: string, archived: boolean, page: number) =>
    ask(["templates", "versions", template, search, archived, page], "templates/{template}/versions", {
      template,
      query: { q: containing(search), include_archived: archived, sort: "created", ...oneMore(page) },
    }),
  // The version that was made before another one. It is an error if there is none.
  versionBefore: (v: t.TemplateVersion, template: t.Template) =>
    ask(
      ["templates", "version-before", v.id],
      "organizations/{organization}/templates/{templatename}/versions/{versionname}/previous",
      { organization: template.organization_id, templatename: template.name, versionname: v.name },
    ),
  // What was sent to a webhook, newest first, a page more at each request.
  deliveries: (webhook: string) =>
    infiniteQueryOptions({
      queryKey: ["webhooks", "deliveries", webhook],
      initialPageParam: 0,
      queryFn: ({ pageParam, signal }) =>
        get("webhooks/{webhook}/deliveries", {
          webhook,
          query: { limit: rowsPerPage, before: pageParam || undefined },
          signal,
        }),
      getNextPageParam: (page) => (page.length < rowsPerPage ? undefined : page.at(-1)?.id),
    }),
  // Where a user is signed in, the last used session first.
  sessions: (user: string, page: number) =>
    ask(["sessions", user, page], "users/{user}/sessions", { user, query: oneMore(page) }),
  tokens: (expired: boolean, page: number) =>
    ask(["tokens", expired, page], "users/{user}/keys/tokens", {
      user: "me",
      query: { include_expired: expired, ...oneMore(page) },
    }),
};
