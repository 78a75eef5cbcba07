// With whom a template or a workspace is shared, and in which role.
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { Plus, Users, X } from "lucide-react";
import { useState } from "react";
import type { FindCandidates } from "~/api/sharing";
import type { Group, MinimalUser } from "~/api/types";
import { plural } from "~/lib/format";
import { useDebounced } from "~/lib/hooks";
import { Avatar } from "./avatar";
import { Button } from "./button";
import { Card } from "./card";
import { Confirm, FormDialog } from "./dialog";
import { Empty } from "./empty";
import { ErrorNote } from "./error-note";
import { Choice, Field, SearchInput, Select } from "./form";
import { IconButton } from "./icon-button";
import { Pending } from "./pending";
import { Table } from "./table";

// Shared is the answer of the API: users and groups with their roles.
export interface Shared {
  users: (MinimalUser & { role: string })[];
  group: (Group & { role: string })[];
}

// Change gives users and groups roles, by id. "" ends the sharing with one.
export interface Change {
  users: Record<string, string>;
  groups: Record<string, string>;
}

interface Entry {
  id: string;
  group: boolean;
  name: string;
  about: string;
}

const ofUser = (u: MinimalUser): Entry => ({ id: u.id, group: false, name: u.username, about: u.name ?? "" });
const ofGroup = (g: Group): Entry => ({
  id: g.id,
  group: true,
  name: g.display_name || g.name,
  about: `Group of ${plural(g.total_member_count, "member")}`,
});

const changeOf = (entry: Entry, role: string): Change =>
  entry.group ? { users: {}, groups: { [entry.id]: role } } : { users: { [entry.id]: role }, groups: {} };

// Roles explains the two roles.
export interface Roles {
  use: string;
  admin: string;
}

interface SharingProps {
  id: string; // the object's
  of: string; // its name
  query: { data: Shared | undefined; error: unknown; isPending: boolean };
  find: FindCandidates;
  roles: Roles;
  empty: string; // who has access while it is not shared
  removed: string; // what happens to those who lose access
  narrow?: boolean; // the user may only withdraw what is shared
  onChange: (change: Change) => Promise<unknown>;
}

// Sharing lists with whom an object is shared, and changes it.
export function Sharing({ id, of, query, find, roles, empty, removed, narrow, onChange }: SharingProps) {
  const [adding, add] = useState(false);
  const [removing, remove] = useState<Entry | null>(null);
  const change = useMutation({ mutationFn: onChange });
  const rows = query.data
    ? [
        ...query.data.group.map((g) => ({ ...ofGroup(g), role: g.role })),
        ...query.data.users.map((u) => ({ ...ofUser(u), role: u.role })),
      ]
    : [];
  return (
    <Card
      flush
      title="Shared with"
      actions={
        !narrow && (
          <Button small onClick={() => add(true)}>
            <Plus /> Share…
          </Button>
        )
      }
    >
      <Pending query={query} what="sharing" />
      {change.error ? (
        <div className="p-4">
          <ErrorNote error={change.error} />
        </div>
      ) : null}
      {query.data && rows.length === 0 && (
        <Empty icon={<Users />} title="Not shared">
          {empty}
        </Empty>
      )}
      {rows.length > 0 && (
        <Table
          label="Shared with"
          rows={rows}
          id={(r) => r.id}
          columns={[
            { name: "Name", cell: (r) => <Who entry={r} /> },
            {
              name: "Role",
              cell: (r) => (
                <Select
                  aria-label={`Role of ${r.name}`}
                  className="w-auto!"
                  value={r.role}
                  disabled={change.isPending}
                  onChange={(e) => change.mutate(changeOf(r, e.target.value))}
                >
                  <option value="use">Use</option>
                  <option value="admin" disabled={!!narrow && r.role === "use"}>
                    Admin
                  </option>
                </Select>
              ),
            },
            { name: "Access", cell: (r) => roles[r.role as keyof Roles], className: "text-muted" },
            {
              name: "Actions",
              action: true,
              cell: (r) => (
                <IconButton label={`Stop sharing with ${r.name}`} onClick={() => remove(r)}>
                  <X />
                </IconButton>
              ),
            },
          ]}
        />
      )}
      {adding && (
        <Add
          id={id}
          of={of}
          roles={roles}
          find={find}
          shared={new Set(rows.map((r) => r.id))}
          onChange={onChange}
          onClose={() => add(false)}
        />
      )}
      {removing && (
        <Confirm
          title={`Stop sharing ${of} with ${removing.name}?`}
          action="Stop sharing"
          danger
          onConfirm={() => onChange(changeOf(removing, ""))}
          onClose={() => remove(null)}
        >
          {removed}
        </Confirm>
      )}
    </Card>
  );
}

const Who = ({ entry: { group, name, about } }: { entry: Entry }) => (
  <span className="flex min-w-0 items-center gap-2">
    {group ? <Users className="size-6 shrink-0 p-1 text-muted" aria-hidden /> : <Avatar name={name} />}
    <span className="min-w-0">
      <span className="font-medium break-words">{name}</span>
      {about && <span className="block text-[13px] text-muted">{about}</span>}
    </span>
  </span>
);

interface AddProps {
  id: string;
  of: string;
  roles: Roles;
  find: FindCandidates;
  shared: ReadonlySet<string>; // ids that have access already
  onChange: (change: Change) => Promise<unknown>;
  onClose: () => void;
}

// Add shares an object with one more user or group.
function Add({ id, of, roles, find, shared, onChange, onClose }: AddProps) {
  const [search, setSearch] = useState("");
  const [chosen, choose] = useState<Entry | null>(null);
  const [role, setRole] = useState<keyof Roles>("use");
  const name = useDebounced(search.trim(), 200);
  const found = useQuery({
    queryKey: ["users", "candidates", id, name],
    queryFn: ({ signal }) => find(name, signal),
    placeholderData: keepPreviousData,
  });
  const share = useMutation({ mutationFn: () => onChange(changeOf(chosen!, role)), onSuccess: onClose });
  const all = found.data
    ? [...found.data.groups.map(ofGroup), ...found.data.users.map(ofUser)].filter((e) => !shared.has(e.id))
    : [];
  const shown = chosen && !all.some((e) => e.id === chosen.id) ? [chosen, ...all] : all;
  return (
    <FormDialog title={`Share ${of}`} request={share} submit="Share" disabled={!chosen} onClose={onClose}>
      <SearchInput
        label="Search users and groups"
        placeholder="Search users and groups"
        className="max-w-none"
        autoFocus
        value={search}
        onChange={setSearch}
      />
      <Pending query={found} what="users and groups" />
      {found.data && (
        <fieldset className="flex max-h-60 flex-col gap-2 overflow-y-auto p-0.5">
          <legend className="sr-only">Share with</legend>
          {shown.length === 0 && (
            <p className="text-muted">
              {search ? "No user or group of the organization matches." : "All members have access."}
            </p>
          )}
          {shown.map((e) => (
            <Choice
              key={e.id}
              type="radio"
              name="with"
              title={e.name}
              about={e.about}
              checked={chosen?.id === e.id}
              onChange={() => choose(e)}
            />
          ))}
        </fieldset>
      )}
      <Field label="Role" hint={roles[role]}>
        {(props) => (
          <Select {...props} value={role} onChange={(e) => setRole(e.target.value as keyof Roles)}>
            <option value="use">Use</option>
            <option value="admin">Admin</option>
          </Select>
        )}
      </Field>
    </FormDialog>
  );
}
