import { useMutation, useQuery } from "@tanstack/react-query";
import { Plus, UserPlus, X } from "lucide-react";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { get, post, send } from "~/api/client";
import { gone, memberPageSize, queries } from "~/api/queries";
import type { Group, Organization, PatchGroupRequest, ReducedUser } from "~/api/types";
import { Avatar } from "~/components/ui/avatar";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Confirm, FormDialog } from "~/components/ui/dialog";
import { Empty } from "~/components/ui/empty";
import { Form, TextField, useFields } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";
import { IconButton } from "~/components/ui/icon-button";
import { LinkButton } from "~/components/ui/link-button";
import { Note } from "~/components/ui/note";
import { Pager } from "~/components/ui/pager";
import { Pending } from "~/components/ui/pending";
import { Table } from "~/components/ui/table";
import { plural } from "~/lib/format";
import { paths } from "~/lib/path";
import { Person, UserInput } from "./user-input";

interface GroupsProps {
  organization: Organization;
  may: Record<string, boolean>;
}

const isEveryone = (g: Group) => g.id === g.organization_id;
const nameOf = (g: Group) => g.display_name || g.name;

export function OrganizationGroups({ organization: o, may }: GroupsProps) {
  const groups = useQuery(queries.groups(o.name));
  const [adding, add] = useState(false);
  return (
    <>
      <Card
        flush
        title="Groups"
        actions={
          may["group.create"] && (
            <Button small onClick={() => add(true)}>
              <Plus /> New group
            </Button>
          )
        }
      >
        <Pending query={groups} what="groups" />
        {groups.data && (
          <Table
            label="Groups"
            rows={groups.data}
            id={(g) => g.id}
            columns={[
              { name: "Name", cell: (g) => <Name group={g} /> },
              {
                name: "Members",
                cell: (g) => (isEveryone(g) ? `All (${g.total_member_count})` : g.total_member_count),
                className: "tabular-nums",
              },
              {
                name: "Allowance",
                cell: (g) =>
                  g.quota_allowance === 0 ? (
                    <span className="text-muted">None</span>
                  ) : (
                    `${plural(g.quota_allowance, "credit")} a day`
                  ),
              },
            ]}
          />
        )}
      </Card>
      {groups.data?.length === 1 && (
        <p className="text-muted">
          {may["group.create"]
            ? "Create a group to share templates and workspaces with some of the members."
            : "Admins of the organization can create more groups."}
        </p>
      )}
      {adding && <NewGroup organization={o} onClose={() => add(false)} />}
    </>
  );
}

function Name({ group: g }: { group: Group }) {
  return (
    <span className="flex items-center gap-2.5">
      <Icon src={g.avatar_url} name={nameOf(g)} className="size-6" />
      <span className="min-w-0 break-words">
        <Link href={paths.group(g.organization_name, g.name)} className="font-medium hover:underline">
          {nameOf(g)}
        </Link>{" "}
        <SyncedBadge group={g} />
        {g.display_name && g.display_name !== g.name && (
          <span className="block font-mono text-xs text-muted">{g.name}</span>
        )}
      </span>
    </span>
  );
}

// SyncedBadge marks a group that the identity provider keeps.
const SyncedBadge = ({ group }: { group: Group }) =>
  group.source === "oidc" && <Badge title="The identity provider keeps this group">identity provider</Badge>;

const allowanceHint =
  "Credits a day for the workspaces of each member. The allowances of all of a member's groups add up. " +
  "While all of them are 0, there is no quota.";

const avatarHint = "The path of a picture on this server, such as /emojis/1f680.png.";

function NewGroup({ organization: o, onClose }: { organization: Organization; onClose: () => void }) {
  const [, navigate] = useLocation();
  const { values, field } = useFields({ name: "", display_name: "", avatar_url: "", quota_allowance: "0" });
  const create = useMutation({
    mutationFn: () =>
      post("organizations/{organization}/groups", {
        organization: o.name,
        body: { ...values, quota_allowance: Number(values.quota_allowance) },
      }),
    onSuccess: (g) => navigate(paths.group(o.name, g.name)),
  });
  return (
    <FormDialog title="New group" request={create} submit="Create group" onClose={onClose}>
      <TextField label="Name" required autoFocus autoComplete="off" spellCheck={false} {...field("name")} />
      <TextField label="Display name" autoComplete="off" {...field("display_name")} />
      <TextField label="Avatar" autoComplete="off" hint={avatarHint} {...field("avatar_url")} />
      <Allowance {...field("quota_allowance")} />
    </FormDialog>
  );
}

const Allowance = (props: { name: string; value: string; onChange: (text: string) => void }) => (
  <TextField label="Quota allowance" type="number" min="0" step="1" required hint={allowanceHint} {...props} />
);

// OrganizationGroup shows one group: its members and settings.
export function OrganizationGroup({ organization: o, may, name }: GroupsProps & { name: string }) {
  const [, navigate] = useLocation();
  const query = useQuery(queries.group(o.name, name));
  const [removing, remove] = useState(false);
  const { data: g } = query;
  if (gone(query.error))
    return (
      <Card>
        <Empty
          title="Group not found"
          action={<LinkButton href={paths.organization(o.name, "groups")}>Go to the groups</LinkButton>}
        >
          It may have been renamed or deleted.
        </Empty>
      </Card>
    );
  if (!g) return <Pending query={query} what="group" />;
  const update = may["group.update"] ?? false;
  return (
    <>
      <div className="flex flex-wrap items-center justify-between gap-2">
        <h2 className="flex min-w-0 items-center gap-2.5 text-base font-semibold">
          <Icon src={g.avatar_url} name={nameOf(g)} className="size-6" />
          <span className="min-w-0 break-words">{nameOf(g)}</span>
          <SyncedBadge group={g} />
        </h2>
        {may["group.delete"] && !isEveryone(g) && (
          <Button look="danger" onClick={() => remove(true)}>
            Delete group…
          </Button>
        )}
      </div>
      {g.source === "oidc" && update && (
        <Note tone="accent" title="The identity provider keeps this group">
          It overwrites changes that you make here.
        </Note>
      )}
      <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_22rem]">
        <Members organization={o} group={g} update={update && !isEveryone(g)} />
        <Settings key={g.id} organization={o} group={g} update={update} />
      </div>
      {removing && (
        <Confirm
          title={`Delete the group ${nameOf(g)}?`}
          action="Delete"
          danger
          onConfirm={async () => {
            await send("DELETE groups/{group}", { group: g.id });
            navigate(paths.organization(o.name, "groups"));
          }}
          onClose={() => remove(false)}
        >
          Its members lose what is shared with the group, and its allowance. Their accounts stay.
        </Confirm>
      )}
    </>
  );
}

interface GroupProps {
  organization: Organization;
  group: Group;
  update: boolean; // the user may change this
}

function Members({ organization: o, group: g, update }: GroupProps) {
  const [page, setPage] = useState(0);
  const members = useQuery(queries.groupMembers(g.id, page));
  const [adding, add] = useState(false);
  const [removing, remove] = useState<ReducedUser | null>(null);
  const rows = members.data?.users ?? [];
  return (
    <div className="flex min-w-0 flex-col gap-4">
      <Card
        flush
        title={`Members (${g.total_member_count})`}
        actions={
          update && (
            <Button small onClick={() => add(true)}>
              <UserPlus /> Add member
            </Button>
          )
        }
      >
        <Pending query={members} what="members" />
        {isEveryone(g) && (
          <p className="border-b border-line px-4 py-2 text-muted">
            All members of the organization are in this group.
          </p>
        )}
        {members.data && rows.length === 0 && (
          <Empty title="No members">{update && "Add members of the organization."}</Empty>
        )}
        {rows.length > 0 && (
          <Table
            label="Members"
            rows={rows}
            id={(u) => u.id}
            columns={[
              {
                name: "Member",
                className: "w-full",
                cell: (u) => (
                  <span className="flex items-center gap-2.5">
                    <Avatar name={u.username} />
                    <Person user={u} />
                  </span>
                ),
              },
              {
                name: "Actions",
                action: true,
                cell: (u) =>
                  update && (
                    <IconButton label={`Remove ${u.username} from the group`} onClick={() => remove(u)}>
                      <X />
                    </IconButton>
                  ),
              },
            ]}
          />
        )}
      </Card>
      {members.data && (
        <Pager page={page} size={memberPageSize} rows={rows.length} count={members.data.count} onPage={setPage} />
      )}
      {adding && <AddMember organization={o} group={g} onClose={() => add(false)} />}
      {removing && (
        <Confirm
          title={`Remove ${removing.username} from ${nameOf(g)}?`}
          action="Remove"
          danger
          onConfirm={() => patch(g, { remove_users: [removing.id] })}
          onClose={() => remove(null)}
        >
          They lose what is shared with the group, and its allowance. They stay in the organization.
        </Confirm>
      )}
    </div>
  );
}

const patch = (g: Group, change: PatchGroupRequest) => send("PATCH groups/{group}", { group: g.id, body: change });

function AddMember({ organization: o, group: g, onClose }: Omit<GroupProps, "update"> & { onClose: () => void }) {
  const [username, setUsername] = useState("");
  const add = useMutation({
    mutationFn: async () => {
      const member = await get("organizations/{organization}/members/{user}", {
        organization: o.name,
        user: username.trim(),
      });
      await patch(g, { add_users: [member.user_id] });
    },
    onSuccess: onClose,
  });
  return (
    <FormDialog
      title={`Add a member to ${nameOf(g)}`}
      request={add}
      submit="Add member"
      disabled={username.trim() === ""}
      onClose={onClose}
    >
      <UserInput
        label="Username"
        hint={`A member of ${o.display_name}.`}
        organization={o.name}
        value={username}
        onChange={setUsername}
      />
    </FormDialog>
  );
}

function Settings({ organization: o, group: g, update }: GroupProps) {
  const [, navigate] = useLocation();
  const { values, field } = useFields({
    name: g.name,
    display_name: g.display_name,
    avatar_url: g.avatar_url,
    quota_allowance: String(g.quota_allowance),
  });
  const save = useMutation({
    mutationFn: () => {
      const quota_allowance = Number(values.quota_allowance);
      return patch(g, isEveryone(g) ? { quota_allowance } : { ...values, quota_allowance });
    },
    onSuccess: (now) => now.name !== g.name && navigate(paths.group(o.name, now.name), { replace: true }),
  });
  if (!update)
    return (
      <Card title="Quota">
        <p>
          {g.quota_allowance === 0
            ? "This group has no allowance."
            : `${plural(g.quota_allowance, "credit")} a day for the workspaces of each member.`}
        </p>
      </Card>
    );
  return (
    <Card title="Settings">
      <Form request={save} submit="Save" done="Saved">
        {!isEveryone(g) && (
          <>
            <TextField label="Name" required autoComplete="off" spellCheck={false} {...field("name")} />
            <TextField label="Display name" autoComplete="off" {...field("display_name")} />
            <TextField label="Avatar" autoComplete="off" hint={avatarHint} {...field("avatar_url")} />
          </>
        )}
        <Allowance {...field("quota_allowance")} />
      </Form>
    </Card>
  );
}
