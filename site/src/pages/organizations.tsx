import { useMutation, useQuery } from "@tanstack/react-query";
import { Building2, Plus } from "lucide-react";
import { lazy } from "react";
import { Link, Redirect, useLocation } from "wouter";
import { post } from "~/api/client";
import { queries } from "~/api/queries";
import { maySync } from "~/api/sync";
import type { Organization } from "~/api/types";
import { OrganizationFields } from "~/components/organization/settings";
import { Badge } from "~/components/ui/badge";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { Form, useFields } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";
import { LinkButton } from "~/components/ui/link-button";
import { Page } from "~/components/ui/page";
import { Pending, PendingPage } from "~/components/ui/pending";
import { Table } from "~/components/ui/table";
import { plural } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

const OrganizationSync = lazy(() => import("./organization-sync"));

const syncPage = "/deployment/idp-org-sync";

export default function Organizations({ create, sync }: { create?: boolean; sync?: boolean }) {
  if (sync) return <OrganizationSync />;
  return create ? <NewOrganization /> : <List />;
}

// List leads to the organization if there is only one and the user cannot create others.
function List() {
  useTitle("Organizations");
  const list = useQuery(queries.organizations());
  const may = useQuery(queries.mayCreateOrganizations());
  const sync = useQuery(maySync());
  const { data: all } = list;
  if (!all || may.isPending) return <PendingPage query={list} what="organizations" title="Organizations" />;
  const creates = may.data?.["create"];
  if (all.length === 1 && creates === false) return <Redirect to={paths.organization(all[0]!.name)} replace />;
  return (
    <Page
      title="Organizations"
      subtitle={plural(all.length, "organization")}
      actions={
        <>
          <DocsLink to="organizations">Organizations</DocsLink>
          {sync.data?.update && <LinkButton href={syncPage}>Sync</LinkButton>}
          {creates && (
            <LinkButton look="primary" href={paths.newOrganization}>
              <Plus /> New organization
            </LinkButton>
          )}
        </>
      }
    >
      <Pending query={may} what="organizations" />
      <Card flush>
        {all.length === 0 ? (
          <Empty icon={<Building2 />} title="You belong to no organization">
            Ask an admin to add you to one. You can create workspaces as soon as you are a member.
          </Empty>
        ) : (
          <Table
            label="Organizations"
            rows={all}
            id={(o) => o.id}
            columns={[
              { name: "Name", cell: (o) => <Name organization={o} /> },
              { name: "Description", cell: (o) => o.description, className: "text-muted" },
            ]}
          />
        )}
      </Card>
    </Page>
  );
}

function Name({ organization: o }: { organization: Organization }) {
  return (
    <span className="flex items-center gap-2.5">
      <Icon src={o.icon} name={o.display_name} className="size-6" />
      <span>
        <Link href={paths.organization(o.name)} className="font-medium hover:underline">
          {o.display_name}
        </Link>{" "}
        {o.is_default && <Badge>default</Badge>}
        <span className="block font-mono text-xs text-muted">{o.name}</span>
      </span>
    </span>
  );
}

function NewOrganization() {
  useTitle("New organization");
  const [, navigate] = useLocation();
  const { values, field } = useFields({ name: "", display_name: "", description: "", icon: "" });
  const create = useMutation({
    mutationFn: () => post("organizations", { body: values }),
    onSuccess: (made) => navigate(paths.organization(made.name, "members")),
  });
  return (
    <Page
      narrow
      title="New organization"
      subtitle="Organizations have members, groups, templates and provisioners of their own."
    >
      <Card className="max-w-2xl">
        <Form
          request={create}
          submit="Create organization"
          cancel={<LinkButton href={paths.organizations}>Cancel</LinkButton>}
        >
          <OrganizationFields field={field} />
          <p className="text-[13px] text-muted">You become its first member and its admin.</p>
        </Form>
      </Card>
    </Page>
  );
}
