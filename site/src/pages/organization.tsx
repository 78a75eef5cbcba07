import { useQuery } from "@tanstack/react-query";
import { Redirect } from "wouter";
import { gone, queries } from "~/api/queries";
import type { Organization } from "~/api/types";
import { OrganizationGroup, OrganizationGroups } from "~/components/organization/groups";
import { OrganizationMembers } from "~/components/organization/members";
import { OrganizationRole, OrganizationRoles, RoleForm } from "~/components/organization/roles";
import { OrganizationSettings } from "~/components/organization/settings";
import { OrganizationSyncForms } from "~/components/organization/sync";
import { Card } from "~/components/ui/card";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { Icon } from "~/components/ui/icon";
import { LinkButton } from "~/components/ui/link-button";
import { Loading } from "~/components/ui/loading";
import { Page } from "~/components/ui/page";
import { PendingPage } from "~/components/ui/pending";
import { TabsNav } from "~/components/ui/tabs-nav";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";
import { checksIn } from "~/lib/permissions";
import { ProvisionersOf } from "./provisioners";

interface OrganizationProps {
  name: string;
  tab?: string | undefined;
  item?: string | undefined; // of a tab: a role's or a group's name
}

export default function OrganizationPage({ name, tab = "", item }: OrganizationProps) {
  const query = useQuery(queries.organization(name));
  const { data: o } = query;
  const may = useQuery({ ...queries.mayIn(o?.id ?? "", checksIn(o?.id ?? "")), enabled: o !== undefined });
  useTitle(item ?? o?.display_name ?? name);
  if (gone(query.error))
    return (
      <Empty
        page
        title="Organization not found"
        action={<LinkButton href={paths.organizations}>Go to your organizations</LinkButton>}
      >
        It does not exist, or you are not a member of it.
      </Empty>
    );
  if (!o) return <PendingPage query={query} what="organization" title={name} />;
  const tabs = [
    { key: "", name: "General" },
    { key: "members", name: "Members" },
    { key: "groups", name: "Groups" },
    { key: "roles", name: "Roles" },
    ...(may.data?.["provisioner_daemon.read"] ? [{ key: "provisioners", name: "Provisioners" }] : []),
    ...(may.data?.["organization.update"] ? [{ key: "idp-sync", name: "Sync" }] : []),
  ].map((t) => ({ ...t, to: paths.organization(o.name, t.key) }));
  return (
    <Page
      title={
        <span className="flex items-center gap-2.5">
          <Icon src={o.icon} name={o.display_name} className="size-7" />
          <span className="min-w-0 break-words">{o.display_name}</span>
        </span>
      }
      subtitle={o.description}
    >
      <TabsNav label="Organization" tabs={tabs} current={tab === "new-role" ? "roles" : tab} />
      <ErrorNote error={may.error} />
      {may.data ? (
        <Tab organization={o} may={may.data} tab={tab} item={item} />
      ) : (
        may.isPending && <Loading what="page" />
      )}
    </Page>
  );
}

interface TabProps {
  organization: Organization;
  may: Record<string, boolean>; // what the user may do in it
  tab: string;
  item: string | undefined;
}

function Tab({ organization: o, may, tab, item }: TabProps) {
  switch (tab) {
    case "":
      return (
        <OrganizationSettings
          key={o.id}
          organization={o}
          update={may["organization.update"] ?? false}
          remove={may["organization.delete"] ?? false}
        />
      );
    case "members":
      return <OrganizationMembers key={o.id} organization={o} may={may} />;
    case "groups":
      return item === undefined ? (
        <OrganizationGroups organization={o} may={may} />
      ) : (
        <OrganizationGroup key={item} organization={o} may={may} name={item} />
      );
    case "roles":
      return item === undefined ? (
        <OrganizationRoles organization={o} may={may} />
      ) : (
        <OrganizationRole key={item} organization={o} may={may} name={item} />
      );
    case "new-role":
      if (may["assign_org_role.create"]) return <RoleForm organization={o} may={may} />;
      return (
        <Card>
          <Empty title="You cannot create roles">Ask an admin of the organization.</Empty>
        </Card>
      );
    case "provisioners":
      return <ProvisionersOf organization={o.name} keys={may["provisioner_daemon.create"] ?? false} />;
    case "idp-sync":
      if (may["organization.update"]) return <OrganizationSyncForms key={o.id} organization={o} />;
      return (
        <Card>
          <Empty title="You cannot see the settings of sync">Ask an admin of the organization.</Empty>
        </Card>
      );
    default:
      return <Redirect to={paths.organization(o.name)} replace />;
  }
}
