import { useMutation, useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { AssignableRole, Organization } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { Card } from "~/components/ui/card";
import { Confirm } from "~/components/ui/dialog";
import { Empty } from "~/components/ui/empty";
import { Facts } from "~/components/ui/facts";
import { Checkbox, Form, TextField, useFields } from "~/components/ui/form";
import { LinkButton } from "~/components/ui/link-button";
import { Item, MoreMenu } from "~/components/ui/menu";
import { Pending } from "~/components/ui/pending";
import { Table } from "~/components/ui/table";
import { plural } from "~/lib/format";
import { paths } from "~/lib/path";
import { described, keysOf, kinds, permissionsOf, summary } from "~/lib/permissions";

interface RolesProps {
  organization: Organization;
  may: Record<string, boolean>;
}

export function OrganizationRoles({ organization: o, may }: RolesProps) {
  const [, navigate] = useLocation();
  const roles = useQuery(queries.roles(o.name));
  const [removing, remove] = useState<AssignableRole | null>(null);
  const create = may["assign_org_role.create"];
  const custom = roles.data?.filter((r) => !r.built_in) ?? [];
  return (
    <>
      <Card
        flush
        title="Custom roles"
        actions={
          create && (
            <LinkButton small href={paths.organization(o.name, "new-role")}>
              <Plus /> New role
            </LinkButton>
          )
        }
      >
        <Pending query={roles} what="roles" />
        {roles.data && custom.length === 0 && (
          <Empty title="No custom roles">
            {create
              ? "Create a role if the built-in ones permit too much or too little."
              : "Admins of the organization can create roles."}
          </Empty>
        )}
        {custom.length > 0 && (
          <Table
            label="Custom roles"
            rows={custom}
            id={(r) => r.name}
            columns={[
              { name: "Name", cell: (r) => <Name organization={o} role={r} /> },
              { name: "Permissions", cell: (r) => summary(r.organization_permissions), className: "text-muted" },
              {
                name: "Actions",
                action: true,
                cell: (r) =>
                  (may["assign_org_role.update"] || may["assign_org_role.delete"]) && (
                    <MoreMenu of={r.display_name || r.name}>
                      {may["assign_org_role.update"] && (
                        <Item onSelect={() => navigate(paths.role(o.name, r.name))}>Change permissions</Item>
                      )}
                      {may["assign_org_role.delete"] && (
                        <Item danger onSelect={() => remove(r)}>
                          Delete…
                        </Item>
                      )}
                    </MoreMenu>
                  ),
              },
            ]}
          />
        )}
      </Card>
      {roles.data && (
        <Card flush title="Built-in roles">
          <Table
            label="Built-in roles"
            rows={roles.data.filter((r) => r.built_in)}
            id={(r) => r.name}
            columns={[
              { name: "Name", cell: (r) => <Name organization={o} role={r} /> },
              { name: "Permissions", cell: (r) => summary(r.organization_permissions), className: "text-muted" },
            ]}
          />
        </Card>
      )}
      {removing && (
        <Confirm
          title={`Delete the role ${removing.display_name || removing.name}?`}
          action="Delete"
          danger
          onConfirm={() =>
            send("DELETE organizations/{organization}/members/roles/{name}", {
              organization: o.name,
              name: removing.name,
            })
          }
          onClose={() => remove(null)}
        >
          Members who have it lose its permissions immediately.
        </Confirm>
      )}
    </>
  );
}

function Name({ organization: o, role: r }: { organization: Organization; role: AssignableRole }) {
  return (
    <>
      <Link href={paths.role(o.name, r.name)} className="font-medium hover:underline">
        {r.display_name || r.name}
      </Link>
      <span className="block font-mono text-xs text-muted">{r.name}</span>
    </>
  );
}

// OrganizationRole shows one role, and its form to those who may change it.
export function OrganizationRole({ organization: o, may, name }: RolesProps & { name: string }) {
  const roles = useQuery(queries.roles(o.name));
  const role = roles.data?.find((r) => r.name === name);
  if (!roles.data) return <Pending query={roles} what="role" />;
  const back = <LinkButton href={paths.organization(o.name, "roles")}>Go to the roles</LinkButton>;
  if (!role)
    return (
      <Card>
        <Empty title="Role not found" action={back}>
          It may have been deleted.
        </Empty>
      </Card>
    );
  if (!role.built_in && may["assign_org_role.update"])
    return <RoleForm key={role.name} organization={o} may={may} role={role} />;
  const all = described(keysOf(role.organization_permissions));
  return (
    <Card title={role.display_name || role.name} actions={<Badge>{role.built_in ? "built-in" : "custom"}</Badge>}>
      {all.length === 0 ? <p className="text-muted">This role permits nothing.</p> : <Facts of={all} />}
      <p className="mt-4 text-[13px] text-muted">
        Every member can also create workspaces, and see the members, groups and roles of the organization.
      </p>
    </Card>
  );
}

// RoleForm creates a custom role, or changes one.
export function RoleForm({ organization: o, may, role }: RolesProps & { role?: AssignableRole }) {
  const [, navigate] = useLocation();
  const { values, field } = useFields({ name: role?.name ?? "", display_name: role?.display_name ?? "" });
  const [chosen, choose] = useState(keysOf(role?.organization_permissions ?? []));
  const save = useMutation({
    mutationFn: () =>
      send(
        role ? "PUT organizations/{organization}/members/roles" : "POST organizations/{organization}/members/roles",
        {
          organization: o.name,
          body: {
            ...values,
            site_permissions: [],
            user_permissions: [],
            organization_member_permissions: [],
            organization_permissions: permissionsOf(chosen),
          },
        },
      ),
    onSuccess: () => navigate(paths.organization(o.name, "roles")),
  });
  const set = (key: string, on: boolean) =>
    choose((old) => new Set(on ? [...old, key] : [...old].filter((k) => k !== key)));
  return (
    <Card title={role ? role.display_name || role.name : "New role"} actions={plural(chosen.size, "permission")}>
      <Form
        request={save}
        submit={role ? "Save role" : "Create role"}
        cancel={<LinkButton href={paths.organization(o.name, "roles")}>Cancel</LinkButton>}
      >
        <div className="grid gap-4 sm:grid-cols-2">
          {!role && (
            <TextField
              label="Name"
              required
              autoFocus
              autoComplete="off"
              spellCheck={false}
              hint="Lower-case letters, digits and hyphens. It cannot be changed later."
              {...field("name")}
            />
          )}
          <TextField label="Display name" autoComplete="off" {...field("display_name")} />
        </div>
        <div className="grid gap-x-8 gap-y-4 sm:grid-cols-2 lg:grid-cols-3">
          {kinds.map(({ type, label, actions }) => (
            <fieldset key={type} className="flex flex-col gap-1">
              <legend className="mb-1 font-medium">{label}</legend>
              {actions.map(([action, words]) => {
                const key = `${type}.${action}`;
                return (
                  <Checkbox
                    key={key}
                    label={words}
                    title={may[key] ? undefined : "You do not have this permission yourself."}
                    className={may[key] ? "" : "opacity-60"}
                    disabled={!may[key]}
                    checked={chosen.has(key)}
                    onChange={(on) => set(key, on)}
                  />
                );
              })}
            </fieldset>
          ))}
        </div>
        <p className="text-[13px] text-muted">
          Permissions hold for everything in {o.display_name}. You can only give and take those that you have. No role
          connects to other users' workspaces.
        </p>
      </Form>
    </Card>
  );
}
