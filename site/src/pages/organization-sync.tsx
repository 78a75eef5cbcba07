// Which organizations follow from the claims of the identity provider.
import { useQuery } from "@tanstack/react-query";
import { maySync } from "~/api/sync";
import { DeploymentSyncForm } from "~/components/organization/sync";
import { Empty } from "~/components/ui/empty";
import { LinkButton } from "~/components/ui/link-button";
import { Page } from "~/components/ui/page";
import { PendingPage } from "~/components/ui/pending";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

export default function OrganizationSync() {
  useTitle("Organization sync");
  const may = useQuery(maySync());
  if (!may.data) return <PendingPage query={may} what="page" title="Organization sync" />;
  if (!may.data.update)
    return (
      <Empty
        page
        title="You cannot see organization sync"
        action={<LinkButton href={paths.organizations}>Go to your organizations</LinkButton>}
      >
        Only owners of the deployment see and change it.
      </Empty>
    );
  return (
    <Page
      narrow
      title="Organization sync"
      subtitle="The claims of the identity provider can decide to which organizations users belong."
      actions={<LinkButton href={paths.organizations}>Organizations</LinkButton>}
    >
      <DeploymentSyncForm />
      <p className="max-w-3xl text-[13px] text-muted">
        CODER_OIDC_ORGANIZATION_FIELD and the options beside it hold until you save. Groups and roles are set in each
        organization, on its tab Sync. Only options of the server set roles in the deployment.
      </p>
    </Page>
  );
}
