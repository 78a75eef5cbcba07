// What workspaces cost, and may cost, in credits a day.
import { useQuery } from "@tanstack/react-query";
import { queries } from "~/api/queries";
import type { WorkspaceQuota } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { Card } from "~/components/ui/card";
import { Note } from "~/components/ui/note";
import { useMe } from "~/components/ui/user";
import { plural } from "~/lib/format";

const credits = (n: number) => plural(n, "credit");

// usage is "12 of 40 credits a day".
const usage = (q: WorkspaceQuota) => `${q.credits_consumed.toLocaleString("en")} of ${credits(q.budget)} a day`;

// Quota adds to a workspace's cost how much of its owner's quota is used: "(ada uses 12 of 40 credits a day)". It shows
// nothing in organizations without quotas, and to those who may not see the owner's account.
export function Quota({ organization, user, name }: { organization: string; user: string; name: string }) {
  const { data } = useQuery(queries.quota(organization, user));
  if (!data || data.budget < 0) return null;
  return (
    <>
      {" "}
      ({name} uses {usage(data)})
    </>
  );
}

// AccountQuota is the card of the account page. Most deployments have no quotas, and no card.
export function AccountQuota() {
  const me = useMe();
  const organization = me.organization_ids[0] ?? "default";
  const { data } = useQuery(queries.quota(organization, me.id));
  if (!data || data.budget < 0) return null;
  return (
    <Card title="Quota">
      <p>
        Your workspaces use {usage(data)}. {data.credits_consumed >= data.budget && <Badge tone="warn">used up</Badge>}
      </p>
      <p className="mt-2 text-muted">
        Running workspaces count. Stop or delete one to make room, or ask an admin for a higher allowance of one of your
        groups.
      </p>
    </Card>
  );
}

interface CostProps {
  version: string;
  organization: string;
  owner: string;
}

// Cost shows what a template's version is known to cost, and how much of the owner's quota is left for it.
export function Cost({ version, organization, owner }: CostProps) {
  const mine = owner === useMe().id;
  const resources = useQuery(queries.versionResources(version)).data;
  const quota = useQuery(queries.quota(organization, owner)).data;
  if (!quota || quota.budget < 0) return null;
  const cost = (resources ?? [])
    .filter((r) => r.workspace_transition === "start")
    .reduce((sum, r) => sum + r.daily_cost, 0);
  const over = quota.credits_consumed + cost > quota.budget;
  return (
    <Note tone={over ? "warn" : "accent"} title={`${mine ? "You use" : "The owner uses"} ${usage(quota)}`}>
      {cost > 0 && `This template costs ${credits(cost)} a day; parameters may change that. `}
      {over && "A workspace that exceeds the quota does not start. Stop or delete another one first, or ask an admin."}
    </Note>
  );
}
