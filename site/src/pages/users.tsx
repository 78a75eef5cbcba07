import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { Bookmark, Download, Plus, X } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { useLocation, useSearch } from "wouter";
import { address, post, send } from "~/api/client";
import { lists, rowsPerPage } from "~/api/lists";
import { queries } from "~/api/queries";
import type { LoginType, User, UserOrder } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Avatar } from "~/components/ui/avatar";
import { Badge } from "~/components/ui/badge";
import { Button, buttonClass } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Confirm, FormDialog } from "~/components/ui/dialog";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { Checkbox, Field, SearchInput, Select, TextField, useFields } from "~/components/ui/form";
import { Item, MoreMenu, Separator } from "~/components/ui/menu";
import { Page } from "~/components/ui/page";
import { Pager } from "~/components/ui/pager";
import { Pending } from "~/components/ui/pending";
import { Table } from "~/components/ui/table";
import { isOwner, mayCreateUsers, mayManage, mayReadUsers, useMe } from "~/components/ui/user";
import { plural } from "~/lib/format";
import { useDebounced, useNow, useTitle } from "~/lib/hooks";
import { choices, filtersOf, searchOf, type UserFilter, type UserFilters } from "~/lib/user-filters";

const UserBulk = lazy(() => import("~/components/admin/user-bulk"));
const SavedSearches = lazy(() => import("~/components/ui/saved-searches"));
const UserStatuses = lazy(() => import("~/components/admin/user-statuses").then((m) => ({ default: m.UserStatuses })));
const UserSessions = lazy(() => import("~/components/account/sessions").then((m) => ({ default: m.UserSessions })));

const aboutRoles: Record<string, string> = {
  owner: "Full access, except connecting to other users' workspaces",
  "user-admin": "Manage users, organizations' members and groups, but not owners",
  "template-admin": "Create and change templates",
  auditor: "Read the audit log, the connection log, users, groups and templates",
};

const orders: UserOrder[] = ["username", "seen", "created"];

type Question = "roles" | "password" | "sessions" | "suspend" | "activate" | "delete";
type Asking = { what: Question; user: User } | { what: "create" | "searches" } | null;

export default function Users() {
  useTitle("Users");
  const me = useMe();
  const [, navigate] = useLocation();
  const params = new URLSearchParams(useSearch());
  const filters = filtersOf(params);
  const sort = orders.find((o) => o === params.get("sort")) ?? "username";
  const [search, setSearch] = useState(params.get("search") ?? "");
  const [page, setPage] = useState(0);
  const rested = useDebounced(search.trim(), 200);
  const q = searchOf(rested, filters, useNow(60_000));
  const users = useQuery({ ...lists.users(q, sort, page), placeholderData: keepPreviousData });
  // The address keeps all that is not the default, so that a link shows the same users.
  const keptOf = (change: Record<string, string> = {}) => {
    const next = { search, ...filters, sort, ...change };
    const kept = new URLSearchParams(Object.entries(next).filter(([, value]) => value !== ""));
    if (next.sort === "username") kept.delete("sort");
    return kept.toString();
  };
  const go = (text: string) => {
    setPage(0);
    navigate(text ? `/users?${text}` : "/users", { replace: true });
  };
  const show = (change: Record<string, string>) => go(keptOf(change));
  const sorted = (by: UserOrder) => ({ on: sort === by, by: () => show({ sort: by }) });
  const [asking, ask] = useState<Asking>(null);
  const close = () => ask(null);
  const [chosen, choose] = useState<ReadonlyMap<string, User>>(new Map());
  const rows = users.data?.users ?? [];
  // As they are now, if they are shown.
  const now = new Map(rows.map((u) => [u.id, u]));
  const selected = [...chosen.values()].map((u) => now.get(u.id) ?? u);
  const select = (u: User, on: boolean) =>
    choose((old) => new Map(on ? [...old, [u.id, u]] : [...old].filter(([id]) => id !== u.id)));
  return (
    <Page
      title="Users"
      subtitle={users.data && plural(users.data.count, "user")}
      actions={
        <>
          <Button onClick={() => ask({ what: "searches" })}>
            <Bookmark /> Saved views
          </Button>
          {mayReadUsers(me) && (
            <a className={buttonClass()} href={address("GET users/export", { query: { q, sort } })} download>
              <Download /> Export CSV
            </a>
          )}
          {mayCreateUsers(me) && (
            <Button look="primary" onClick={() => ask({ what: "create" })}>
              <Plus /> New user
            </Button>
          )}
        </>
      }
    >
      <Filters
        search={search}
        filters={filters}
        onSearch={(text) => {
          setSearch(text);
          show({ search: text });
        }}
        onChange={show}
      />
      <Pending query={users} what="users" />
      {users.data && (
        <Card flush>
          {rows.length > 0 && mayCreateUsers(me) && (
            <Selection rows={rows} count={users.data.count} q={q} sort={sort} selected={selected} onSelect={choose} />
          )}
          {rows.length === 0 ? (
            <Empty title="No users found">{q && "Change the search or the filters to see more."}</Empty>
          ) : (
            <Table
              label="Users"
              rows={rows}
              id={(u) => u.id}
              columns={[
                {
                  name: "User",
                  sort: sorted("username"),
                  cell: (u) => (
                    <span className="flex items-center gap-2.5">
                      {mayCreateUsers(me) && (
                        <input
                          type="checkbox"
                          className="shrink-0 accent-fill"
                          aria-label={`Select ${u.username}`}
                          checked={chosen.has(u.id)}
                          onChange={(e) => select(u, e.target.checked)}
                        />
                      )}
                      <Avatar name={u.username} />
                      <span>
                        <span className="font-medium">{u.username}</span>
                        {u.name && <span className="text-muted"> {u.name}</span>}
                        <span className="block text-[13px] text-muted">
                          {u.is_service_account ? "Service account" : u.email}
                        </span>
                      </span>
                    </span>
                  ),
                },
                { name: "Roles", cell: (u) => <RoleBadges user={u} /> },
                {
                  name: "Status",
                  cell: (u) => (
                    <Badge tone={u.status === "active" ? "ok" : u.status === "suspended" ? "bad" : "plain"}>
                      {u.status}
                    </Badge>
                  ),
                },
                { name: "Signs in with", cell: (u) => signIns[u.login_type] ?? u.login_type },
                { name: "Last seen", sort: sorted("seen"), cell: (u) => <Ago at={u.last_seen_at} /> },
                { name: "Created", sort: sorted("created"), cell: (u) => <Ago at={u.created_at} /> },
                {
                  name: "Actions",
                  action: true,
                  cell: (u) =>
                    mayManage(me, u) && (
                      <UserMenu user={u} self={u.id === me.id} onAsk={(what) => ask({ what, user: u })} />
                    ),
                },
              ]}
            />
          )}
        </Card>
      )}
      {users.data && (
        <Pager page={page} size={rowsPerPage} rows={rows.length} count={users.data.count} onPage={setPage} />
      )}
      {isOwner(me) && (
        <Suspense>
          <UserStatuses />
        </Suspense>
      )}
      {asking?.what === "create" && <NewUser onClose={close} />}
      {asking?.what === "searches" && (
        <Suspense>
          <SavedSearches
            page="users"
            search={keptOf()}
            shown={[...new URLSearchParams(keptOf())].map(([key, value]) => `${key}:${value}`).join(" ")}
            onSearch={(text) => {
              setSearch(new URLSearchParams(text).get("search") ?? "");
              go(text);
            }}
            onClose={close}
          />
        </Suspense>
      )}
      {asking?.what === "roles" && <Roles user={asking.user} onClose={close} />}
      {asking?.what === "password" && <Password user={asking.user} onClose={close} />}
      {asking?.what === "sessions" && (
        <Suspense>
          <UserSessions user={asking.user} onClose={close} />
        </Suspense>
      )}
      {asking?.what === "suspend" && <Change user={asking.user} change={changes.suspend} onClose={close} />}
      {asking?.what === "activate" && <Change user={asking.user} change={changes.activate} onClose={close} />}
      {asking?.what === "delete" && <Change user={asking.user} change={changes.delete} onClose={close} />}
    </Page>
  );
}

const signIns: Record<string, string> = {
  password: "Password",
  oidc: "OpenID Connect",
  github: "GitHub",
  none: "Tokens only",
};

interface FiltersProps {
  search: string;
  filters: UserFilters;
  onSearch: (text: string) => void;
  onChange: (change: Record<string, string>) => void;
}

function Filters({ search, filters, onSearch, onChange }: FiltersProps) {
  const organizations = useQuery(queries.organizations());
  const several = (organizations.data?.length ?? 0) > 1;
  const filter = (name: UserFilter, label: string, options: [string, string][]) => (
    <Select
      aria-label={label}
      className="w-auto! max-sm:shrink-0 max-sm:grow max-sm:basis-36"
      value={filters[name]}
      onChange={(e) => onChange({ [name]: e.target.value })}
    >
      {options.map(([value, text]) => (
        <option key={value} value={value}>
          {text}
        </option>
      ))}
    </Select>
  );
  return (
    <div className="flex flex-wrap gap-2">
      <div className="min-w-0 flex-1 basis-52 max-sm:basis-full">
        <SearchInput
          label="Search users"
          placeholder="Search by name or email"
          value={search}
          onChange={onSearch}
          className="max-w-full"
        />
      </div>
      {filter("role", "Role", choices.role)}
      {filter("status", "Status", choices.status)}
      {filter("login", "Signs in with", choices.login)}
      {(several || filters.organization) &&
        filter("organization", "Organization", [
          ["", "All organizations"],
          ...(organizations.data ?? []).map((o): [string, string] => [o.name, o.display_name || o.name]),
        ])}
      {filter("seen", "Last seen", choices.seen)}
      {Object.values(filters).some(Boolean) && (
        <Button onClick={() => onChange({ role: "", status: "", login: "", organization: "", seen: "" })}>
          <X /> Clear filters
        </Button>
      )}
    </div>
  );
}

interface SelectionProps {
  rows: User[]; // of this page
  count: number; // of all pages
  q: string;
  sort: UserOrder;
  selected: User[];
  onSelect: (users: ReadonlyMap<string, User>) => void;
}

const keyed = (users: User[]) => new Map(users.map((u) => [u.id, u]));

// Selection selects users, of this page or of all, and says what can be done to those that are selected.
function Selection({ rows, count, q, sort, selected, onSelect }: SelectionProps) {
  const ids = new Set(selected.map((u) => u.id));
  const whole = rows.every((u) => ids.has(u.id));
  const rest = useMutation({
    mutationFn: () => lists.allUsers(q, sort),
    onSuccess: (users) => onSelect(keyed(users)),
  });
  return (
    <div className="flex min-h-10 flex-wrap items-center gap-x-3 gap-y-2 border-b border-line px-4 py-1.5 text-[13px]">
      <label className="flex items-center gap-2.5 text-muted">
        <input
          type="checkbox"
          className="shrink-0 accent-fill"
          checked={whole}
          onChange={() => onSelect(whole ? new Map() : new Map([...keyed(selected), ...keyed(rows)]))}
        />
        {selected.length > 0 ? `${selected.length} selected` : count > rows.length ? "Select this page" : "Select all"}
      </label>
      {selected.length > 0 && (
        <div role="group" aria-label="Selected users" className="flex flex-wrap gap-1">
          {whole && selected.length < count && (
            <Button small busy={rest.isPending} onClick={() => rest.mutate()}>
              Select all {count.toLocaleString()}
            </Button>
          )}
          <Suspense>
            <UserBulk selected={selected} onDone={() => onSelect(new Map())} />
          </Suspense>
        </div>
      )}
      <ErrorNote error={rest.error} />
    </div>
  );
}

interface UserChange {
  action: string;
  request: (id: string) => Promise<unknown>;
  final?: boolean; // cannot be undone: the user's name must be typed
  text: string;
}

const changes: Record<"suspend" | "activate" | "delete", UserChange> = {
  suspend: {
    action: "Suspend",
    request: (id) => send("PUT users/{user}/status/suspend", { user: id }),
    text: "Sessions and tokens stop working immediately. Workspaces stay as they are.",
  },
  activate: {
    action: "Activate",
    request: (id) => send("PUT users/{user}/status/activate", { user: id }),
    text: "The user can sign in again.",
  },
  delete: {
    action: "Delete",
    request: (id) => send("DELETE users/{user}", { user: id }),
    final: true,
    text: "This cannot be undone. You cannot delete a user who still has workspaces.",
  },
};

function Change({ user, change, onClose }: { user: User; change: UserChange; onClose: () => void }) {
  return (
    <Confirm
      title={`${change.action} ${user.username}?`}
      action={change.action}
      {...(change.final ? { danger: true, typed: user.username } : {})}
      onConfirm={() => change.request(user.id)}
      onClose={onClose}
    >
      {change.text}
    </Confirm>
  );
}

function RoleBadges({ user }: { user: User }) {
  if (user.roles.length === 0) return <span className="text-muted">Member</span>;
  return (
    <span className="flex flex-wrap gap-1">
      {user.roles.map((r) => (
        <Badge key={r.name} tone="accent">
          {r.display_name || r.name}
        </Badge>
      ))}
    </span>
  );
}

function UserMenu({ user, self, onAsk }: { user: User; self: boolean; onAsk: (what: Question) => void }) {
  return (
    <MoreMenu of={user.username}>
      <Item onSelect={() => onAsk("roles")}>Change roles…</Item>
      {(user.login_type === "password" || user.login_type === "none") && !user.is_service_account && (
        <Item onSelect={() => onAsk("password")}>Set password…</Item>
      )}
      <Item onSelect={() => onAsk("sessions")}>Sessions…</Item>
      {user.status === "suspended" ? (
        <Item onSelect={() => onAsk("activate")}>Activate…</Item>
      ) : (
        <Item disabled={self} onSelect={() => onAsk("suspend")}>
          Suspend…
        </Item>
      )}
      <Separator />
      <Item danger disabled={self} onSelect={() => onAsk("delete")}>
        Delete…
      </Item>
    </MoreMenu>
  );
}

// A service account is a program's: it has neither an address nor a password.
type AccountType = LoginType | "service";

const loginTypes: { type: AccountType; label: string }[] = [
  { type: "password", label: "A password" },
  { type: "oidc", label: "OpenID Connect" },
  { type: "github", label: "GitHub" },
  { type: "none", label: "API tokens only" },
  { type: "service", label: "Service account, without email" },
];

function NewUser({ onClose }: { onClose: () => void }) {
  const { values, field } = useFields({ username: "", email: "", name: "", password: "" });
  const methods = useQuery(queries.authMethods());
  const organizations = useQuery(queries.organizations());
  const [type, setType] = useState<AccountType>("password");
  const [organization, setOrganization] = useState("");
  const types = loginTypes.filter((t) => (t.type !== "oidc" && t.type !== "github") || methods.data?.[t.type].enabled);
  const create = useMutation({
    mutationFn: () =>
      post("users", {
        body: {
          ...values,
          email: type === "service" ? "" : values.email,
          password: type === "password" ? values.password : "",
          login_type: type === "service" ? "none" : type,
          service_account: type === "service",
          ...(organization && { organization_ids: [organization] }),
        },
      }),
    onSuccess: onClose,
  });
  return (
    <FormDialog title="New user" request={create} submit="Create user" onClose={onClose}>
      <TextField label="Username" required autoFocus autoComplete="off" {...field("username")} />
      {type !== "service" && <TextField label="Email" type="email" required autoComplete="off" {...field("email")} />}
      <TextField label="Full name" autoComplete="off" {...field("name")} />
      <Field label="Signs in with">
        {(props) => (
          <Select {...props} value={type} onChange={(e) => setType(e.target.value as AccountType)}>
            {types.map((t) => (
              <option key={t.type} value={t.type}>
                {t.label}
              </option>
            ))}
          </Select>
        )}
      </Field>
      {(organizations.data?.length ?? 0) > 1 && (
        <Field label="Organization">
          {(props) => (
            <Select
              {...props}
              value={organization || organizations.data?.find((o) => o.is_default)?.id}
              onChange={(e) => setOrganization(e.target.value)}
            >
              {organizations.data?.map((o) => (
                <option key={o.id} value={o.id}>
                  {o.display_name}
                </option>
              ))}
            </Select>
          )}
        </Field>
      )}
      {type === "password" && (
        <TextField
          label="Password"
          type="password"
          required
          autoComplete="new-password"
          hint="Share it securely; they can change it on their account page."
          {...field("password")}
        />
      )}
    </FormDialog>
  );
}

function Roles({ user, onClose }: { user: User; onClose: () => void }) {
  const roles = useQuery(queries.siteRoles());
  const [chosen, choose] = useState(user.roles.map((r) => r.name));
  const save = useMutation({
    mutationFn: () => send("PUT users/{user}/roles", { user: user.id, body: { roles: chosen } }),
    onSuccess: onClose,
  });
  return (
    <FormDialog title={`Change roles of ${user.username}`} request={save} submit="Save roles" onClose={onClose}>
      <Pending query={roles} what="roles" />
      {roles.data?.map((r) => (
        <Checkbox
          key={r.name}
          label={r.display_name}
          hint={r.assignable ? aboutRoles[r.name] : "You cannot give or take this role."}
          disabled={!r.assignable}
          checked={chosen.includes(r.name)}
          onChange={(on) => choose(on ? [...chosen, r.name] : chosen.filter((c) => c !== r.name))}
        />
      ))}
      <p className="text-[13px] text-muted">Every user can create workspaces in their organizations.</p>
    </FormDialog>
  );
}

function Password({ user, onClose }: { user: User; onClose: () => void }) {
  const { values, field } = useFields({ password: "" });
  const save = useMutation({
    mutationFn: () => send("PUT users/{user}/password", { user: user.id, body: { old_password: "", ...values } }),
    onSuccess: onClose,
  });
  return (
    <FormDialog title={`Set password of ${user.username}`} request={save} submit="Set password" onClose={onClose}>
      <TextField
        label="New password"
        type="password"
        required
        autoFocus
        autoComplete="new-password"
        {...field("password")}
      />
    </FormDialog>
  );
}
