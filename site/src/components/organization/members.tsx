import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { UserPlus } from "lucide-react";
import { useState } from "react";
import { send } from "~/api/client";
import { ask, memberPageSize, queries } from "~/api/queries";
import type { AssignableRole, Organization, OrganizationMember } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Avatar } from "~/components/ui/avatar";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Confirm, FormDialog } from "~/components/ui/dialog";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { Checkbox, SearchInput } from "~/components/ui/form";
import { Item, MoreMenu } from "~/components/ui/menu";
import { Pager } from "~/components/ui/pager";
import { Pending } from "~/components/ui/pending";
import { Table } from "~/components/ui/table";
import { useMe } from "~/components/ui/user";
import { useDebounced } from "~/lib/hooks";
import { summary } from "~/lib/permissions";
import { Person, UserInput } from "./user-input";

type Asking = { what: "roles" | "remove"; member: OrganizationMember } | { what: "add" } | null;

interface MembersProps {
  organization: Organization;
  may: Record<string, boolean>;
}

export function OrganizationMembers({ organization: o, may }: MembersProps) {
  const me = useMe();
  const [search, setSearch] = useState("");
  const [page, setPage] = useState(0);
  const rested = useDebounced(search, 200);
  const members = useQuery({ ...queries.members(o.name, rested, page), placeholderData: keepPreviousData });
  const roles = useQuery(queries.roles(o.name));
  const [asking, ask] = useState<Asking>(null);
  const close = () => ask(null);
  const { data } = members;
  const changes = may["organization_member.update"] || may["organization_member.delete"];
  return (
    <>
      <div className="flex flex-wrap items-center justify-between gap-2">
        <SearchInput
          label="Search members"
          placeholder="Search by name"
          value={search}
          onChange={(text) => {
            setSearch(text);
            setPage(0);
          }}
        />
        {may["organization_member.create"] && (
          <Button look="primary" onClick={() => ask({ what: "add" })}>
            <UserPlus /> Add member
          </Button>
        )}
      </div>
      {may["organization_member.create"] && <Sent organization={o} />}
      <Pending query={members} what="members" />
      {data && (
        <Card flush>
          {data.members.length === 0 ? (
            <Empty title="No members found">
              {rested ? "Change the search to see more." : "Add users, so that they can create workspaces here."}
            </Empty>
          ) : (
            <Table
              label="Members"
              rows={data.members}
              id={(m) => m.user_id}
              columns={[
                {
                  name: "Member",
                  cell: (m) => (
                    <span className="flex items-center gap-2.5">
                      <Avatar name={m.username} />
                      <Person user={m} />
                    </span>
                  ),
                },
                { name: "Roles", cell: (m) => <RoleBadges member={m} roles={roles.data ?? []} /> },
                {
                  name: "Status",
                  cell: (m) => m.status && <Badge tone={m.status === "suspended" ? "bad" : "ok"}>{m.status}</Badge>,
                },
                {
                  name: "Actions",
                  action: true,
                  cell: (m) =>
                    changes && (
                      <MoreMenu of={m.username}>
                        {may["organization_member.update"] && (
                          <Item disabled={m.user_id === me.id} onSelect={() => ask({ what: "roles", member: m })}>
                            Change roles…
                          </Item>
                        )}
                        {may["organization_member.delete"] && (
                          <Item danger onSelect={() => ask({ what: "remove", member: m })}>
                            Remove…
                          </Item>
                        )}
                      </MoreMenu>
                    ),
                },
              ]}
            />
          )}
        </Card>
      )}
      {data && (
        <Pager page={page} size={memberPageSize} rows={data.members.length} count={data.count} onPage={setPage} />
      )}
      {asking?.what === "add" && <AddMember organization={o} onClose={close} />}
      {asking?.what === "roles" && (
        <Roles organization={o} member={asking.member} roles={roles.data ?? []} onClose={close} />
      )}
      {asking?.what === "remove" && (
        <Confirm
          title={`Remove ${asking.member.username} from ${o.display_name}?`}
          action="Remove"
          danger
          onConfirm={() =>
            send("DELETE organizations/{organization}/members/{user}", {
              organization: o.name,
              user: asking.member.user_id,
            })
          }
          onClose={close}
        >
          They also leave the organization's groups and lose what is shared with them here. Their account stays. A
          member who still owns workspaces cannot be removed.
        </Confirm>
      )}
    </>
  );
}

// Sent lists the invitations that await an answer.
function Sent({ organization: o }: { organization: Organization }) {
  const { data } = useQuery(
    ask(["invitations", o.name], "organizations/{organization}/invitations", { organization: o.name }),
  );
  const withdraw = useMutation({
    mutationFn: (id: string) =>
      send("DELETE organizations/{organization}/invitations/{user}", { organization: o.name, user: id }),
  });
  if (!data?.length) return null;
  return (
    <Card flush>
      {withdraw.error && <ErrorNote error={withdraw.error} />}
      <Table
        label="Invitations"
        rows={data}
        id={(i) => i.user_id}
        columns={[
          { name: "Invited", cell: (i) => <Person user={i} /> },
          { name: "By", cell: (i) => i.invited_by },
          { name: "Expires", cell: (i) => <Ago at={i.expires_at} ahead /> },
          {
            name: "Actions",
            action: true,
            cell: (i) => (
              <Button disabled={withdraw.isPending} onClick={() => withdraw.mutate(i.user_id)}>
                Withdraw
              </Button>
            ),
          },
        ]}
      />
    </Card>
  );
}

function RoleBadges({ member, roles }: { member: OrganizationMember; roles: AssignableRole[] }) {
  if (member.roles.length + member.global_roles.length === 0) return <span className="text-muted">Member</span>;
  return (
    <span className="flex flex-wrap gap-1">
      {member.roles.map((r) => (
        <Badge key={r.name} tone="accent">
          {roles.find((known) => known.name === r.name)?.display_name || r.display_name || r.name}
        </Badge>
      ))}
      {member.global_roles.map((r) => (
        <Badge key={r.name} title="A role in the deployment">
          {r.display_name || r.name}
        </Badge>
      ))}
    </span>
  );
}

function AddMember({ organization: o, onClose }: { organization: Organization; onClose: () => void }) {
  const [username, setUsername] = useState("");
  const add = useMutation({
    mutationFn: () =>
      send("POST organizations/{organization}/members/{user}", { organization: o.name, user: username.trim() }),
    onSuccess: onClose,
  });
  return (
    <FormDialog
      title={`Add a member to ${o.display_name}`}
      request={add}
      submit="Add member"
      disabled={username.trim() === ""}
      onClose={onClose}
    >
      <UserInput
        label="Username"
        hint="They are invited and accept, unless you administer all users of the deployment."
        value={username}
        onChange={setUsername}
      />
    </FormDialog>
  );
}

interface RolesProps {
  organization: Organization;
  member: OrganizationMember;
  roles: AssignableRole[];
  onClose: () => void;
}

// Roles chooses a member's roles. Roles with permissions that the user does not have stay as they are.
function Roles({ organization: o, member, roles, onClose }: RolesProps) {
  const [chosen, choose] = useState(member.roles.map((r) => r.name));
  const save = useMutation({
    mutationFn: () =>
      send("PUT organizations/{organization}/members/{user}/roles", {
        organization: o.name,
        user: member.user_id,
        body: { roles: chosen },
      }),
    onSuccess: onClose,
  });
  return (
    <FormDialog title={`Change roles of ${member.username}`} request={save} submit="Save roles" onClose={onClose}>
      {roles.map((r) => (
        <Checkbox
          key={r.name}
          label={r.display_name || r.name}
          hint={r.assignable ? summary(r.organization_permissions) : "It has permissions that you do not have."}
          disabled={!r.assignable}
          checked={chosen.includes(r.name)}
          onChange={(on) => choose(on ? [...chosen, r.name] : chosen.filter((c) => c !== r.name))}
        />
      ))}
      <p className="text-[13px] text-muted">Every member can create workspaces.</p>
    </FormDialog>
  );
}
