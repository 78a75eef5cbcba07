import { useMutation, useQuery } from "@tanstack/react-query";
import { Ellipsis, Plus } from "lucide-react";
import { useState } from "react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { CreateUserRequest, UpdateRolesRequest, UpdateUserPasswordRequest, User } from "~/api/types";
import { Confirm, Dialog } from "~/components/dialog";
import { Item, Menu, Separator } from "~/components/menu";
import { Table } from "~/components/table";
import {
  Ago,
  Avatar,
  Badge,
  Button,
  Card,
  Empty,
  ErrorNote,
  fieldError,
  IconButton,
  Input,
  Loading,
  Page,
  TextField,
} from "~/components/ui";
import { isOwner, useMe } from "~/components/user";
import { plural } from "~/lib/format";
import { useTitle } from "~/lib/hooks";

const roles = [
  { name: "owner", label: "Owner", about: "full access, except connecting to other users' workspaces" },
  { name: "template-admin", label: "Template admin", about: "creates and changes templates" },
];

type Question = "roles" | "password" | "suspend" | "activate" | "delete";
type Asking = { what: Question; user: User } | { what: "create" } | null;

export default function Users() {
  useTitle("Users");
  const me = useMe();
  const users = useQuery(queries.users());
  const [search, setSearch] = useState("");
  const [asking, ask] = useState<Asking>(null);
  const shown = (users.data?.users ?? []).filter((u) =>
    `${u.username} ${u.name} ${u.email}`.toLowerCase().includes(search.toLowerCase()),
  );
  const close = () => ask(null);
  return (
    <Page
      title="Users"
      subtitle={users.data && plural(users.data.count, "user")}
      actions={
        isOwner(me) && (
          <Button look="primary" onClick={() => ask({ what: "create" })}>
            <Plus /> New user
          </Button>
        )
      }
    >
      <Input
        type="search"
        aria-label="Search users"
        placeholder="Search by name or email"
        value={search}
        onChange={(e) => setSearch(e.target.value)}
        className="max-w-sm"
      />
      <ErrorNote error={users.error} />
      {users.isPending && !users.error && <Loading what="users" />}
      {users.data && (
        <Card flush>
          {shown.length === 0 ? (
            <Empty title="No users found" />
          ) : (
            <Table
              label="Users"
              rows={shown}
              id={(u) => u.id}
              columns={[
                {
                  name: "User",
                  cell: (u) => (
                    <span className="flex items-center gap-2.5">
                      <Avatar name={u.username} />
                      <span>
                        <span className="font-medium">{u.username}</span>
                        {u.name && <span className="text-muted"> {u.name}</span>}
                        <span className="block text-[13px] text-muted">{u.email}</span>
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
                { name: "Last seen", cell: (u) => <Ago at={u.last_seen_at} /> },
                {
                  name: "Actions",
                  action: true,
                  cell: (u) =>
                    isOwner(me) && <UserMenu user={u} self={u.id === me.id} onAsk={(what) => ask({ what, user: u })} />,
                },
              ]}
            />
          )}
        </Card>
      )}
      {asking?.what === "create" && <NewUser onClose={close} />}
      {asking?.what === "roles" && <Roles user={asking.user} onClose={close} />}
      {asking?.what === "password" && <Password user={asking.user} onClose={close} />}
      {asking?.what === "suspend" && (
        <Change
          user={asking.user}
          title={`Suspend ${asking.user.username}?`}
          action="Suspend"
          path="status/suspend"
          onClose={close}
        >
          Sessions and tokens stop working immediately. Workspaces stay as they are.
        </Change>
      )}
      {asking?.what === "activate" && (
        <Change
          user={asking.user}
          title={`Activate ${asking.user.username}?`}
          action="Activate"
          path="status/activate"
          onClose={close}
        >
          They can sign in again.
        </Change>
      )}
      {asking?.what === "delete" && (
        <Change
          user={asking.user}
          title={`Delete ${asking.user.username}?`}
          action="Delete"
          path=""
          danger
          onClose={close}
        >
          This cannot be undone. You cannot delete a user who still has workspaces.
        </Change>
      )}
    </Page>
  );
}

function Change({
  user,
  title,
  action,
  path,
  danger,
  children,
  onClose,
}: {
  user: User;
  title: string;
  action: string;
  path: string;
  danger?: boolean;
  children: string;
  onClose: () => void;
}) {
  const change = useMutation({
    mutationFn: () => send(path === "" ? "DELETE" : "PUT", `users/${user.id}${path && `/${path}`}`),
  });
  return (
    <Confirm
      title={title}
      action={action}
      {...(danger ? { danger, typed: user.username } : {})}
      onConfirm={() => change.mutateAsync()}
      onClose={onClose}
    >
      {children}
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
    <Menu
      trigger={
        <IconButton label={`More for ${user.username}`}>
          <Ellipsis />
        </IconButton>
      }
    >
      <Item onSelect={() => onAsk("roles")}>Change roles…</Item>
      <Item onSelect={() => onAsk("password")}>Set a password…</Item>
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
    </Menu>
  );
}

function NewUser({ onClose }: { onClose: () => void }) {
  const [form, setForm] = useState({ username: "", email: "", name: "", password: "" });
  const set = (key: keyof typeof form) => (value: string) => setForm((f) => ({ ...f, [key]: value }));
  const create = useMutation({
    mutationFn: () => send("POST", "users", { ...form, login_type: "password" } satisfies CreateUserRequest),
    onSuccess: onClose,
  });
  const error = (field: string) => fieldError(create.error, field);
  return (
    <Dialog title="New user" onClose={onClose}>
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          create.mutate();
        }}
      >
        <TextField
          label="Username"
          required
          autoFocus
          autoComplete="off"
          value={form.username}
          onChange={set("username")}
          error={error("username")}
        />
        <TextField
          label="Email"
          type="email"
          required
          autoComplete="off"
          value={form.email}
          onChange={set("email")}
          error={error("email")}
        />
        <TextField
          label="Full name"
          autoComplete="off"
          value={form.name}
          onChange={set("name")}
          error={error("name")}
        />
        <TextField
          label="Password"
          type="password"
          required
          autoComplete="new-password"
          value={form.password}
          onChange={set("password")}
          error={error("password")}
          hint="Share it securely; they can change it on their account page."
        />
        <ErrorNote error={create.error} />
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={create.isPending}>
            Create user
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Roles({ user, onClose }: { user: User; onClose: () => void }) {
  const [chosen, choose] = useState(user.roles.map((r) => r.name));
  const save = useMutation({
    mutationFn: () => send("PUT", `users/${user.id}/roles`, { roles: chosen } satisfies UpdateRolesRequest),
    onSuccess: onClose,
  });
  return (
    <Dialog title={`Roles of ${user.username}`} onClose={onClose}>
      <form
        className="flex flex-col gap-3"
        onSubmit={(e) => {
          e.preventDefault();
          save.mutate();
        }}
      >
        {roles.map((r) => (
          <label key={r.name} className="flex items-start gap-2">
            <input
              type="checkbox"
              className="mt-1 accent-fill"
              checked={chosen.includes(r.name)}
              onChange={(e) => choose(e.target.checked ? [...chosen, r.name] : chosen.filter((c) => c !== r.name))}
            />
            <span>
              {r.label}
              <span className="block text-[13px] text-muted">{r.about}</span>
            </span>
          </label>
        ))}
        <p className="text-[13px] text-muted">Every user is a member and can create workspaces.</p>
        <ErrorNote error={save.error} />
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={save.isPending}>
            Save
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Password({ user, onClose }: { user: User; onClose: () => void }) {
  const [password, setPassword] = useState("");
  const save = useMutation({
    mutationFn: () =>
      send("PUT", `users/${user.id}/password`, { old_password: "", password } satisfies UpdateUserPasswordRequest),
    onSuccess: onClose,
  });
  return (
    <Dialog title={`Password of ${user.username}`} onClose={onClose}>
      <form
        className="flex flex-col gap-4"
        onSubmit={(e) => {
          e.preventDefault();
          save.mutate();
        }}
      >
        <TextField
          label="New password"
          type="password"
          required
          autoFocus
          autoComplete="new-password"
          value={password}
          onChange={setPassword}
          error={fieldError(save.error, "password")}
        />
        <ErrorNote error={save.error} />
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={save.isPending}>
            Set password
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
