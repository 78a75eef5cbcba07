import { useQuery } from "@tanstack/react-query";
import { Cpu } from "lucide-react";
import { useState } from "react";
import { queries } from "~/api/queries";
import type { MeshPeer, ProvisionerDaemon } from "~/api/types";
import { JobQueue } from "~/components/admin/job-queue";
import { ProvisionerKeys } from "~/components/admin/provisioner-keys";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import { Dot, jobTone } from "~/components/ui/status";
import { mono, Table } from "~/components/ui/table";
import { Tags } from "~/components/ui/tags";
import { isOwner, mayEditTemplates, useMe } from "~/components/ui/user";
import { duration } from "~/lib/format";
import { useTitle } from "~/lib/hooks";

export default function Provisioners() {
  useTitle("Provisioners");
  const owner = isOwner(useMe());
  return (
    <Page
      title="Provisioners"
      subtitle="Run Terraform for template imports and workspace builds"
      actions={<DocsLink to="provisioners">Running provisioners</DocsLink>}
    >
      <ProvisionersOf keys={owner} />
    </Page>
  );
}

interface ProvisionersOfProps {
  organization?: string; // its name; the default organization without one
  keys: boolean; // the user manages keys
}

// ProvisionersOf shows the provisioners of an organization, their queue and their keys.
export function ProvisionersOf({ organization, keys }: ProvisionersOfProps) {
  return (
    <>
      <Daemons organization={organization} />
      <JobQueue organization={organization} />
      {keys && <ProvisionerKeys organization={organization} />}
    </>
  );
}

const daemonTone = { idle: "ok", busy: "accent", offline: "plain" } as const;

function Daemons({ organization }: { organization: string | undefined }) {
  const daemons = useQuery(queries.daemons(organization));
  const mesh = useQuery(queries.mesh());
  const [all, showAll] = useState(false);
  const list = daemons.data ?? [];
  const shown = all ? list : list.filter((d) => d.status !== "offline");
  return (
    <Card
      flush
      title={all ? "All provisioners" : "Online provisioners"}
      actions={
        list.length > list.filter((d) => d.status !== "offline").length && (
          <Button small look="quiet" onClick={() => showAll(!all)}>
            {all ? "Hide offline" : "Show offline"}
          </Button>
        )
      }
    >
      <Pending query={daemons} what="provisioners" />
      {daemons.data && shown.length === 0 && <NoDaemons all={all} />}
      {shown.length > 0 && (
        <Table
          label="Provisioners"
          rows={shown}
          id={(d) => d.id}
          columns={[
            {
              name: "Name",
              cell: (d) => (
                <>
                  <span className="font-medium">{d.name}</span>
                  {d.key_name && d.key_name !== "built-in" && (
                    <span className="block text-[13px] text-muted">key {d.key_name}</span>
                  )}
                </>
              ),
            },
            {
              name: "Status",
              cell: (d) => (
                <Badge tone={daemonTone[d.status]}>
                  <Dot tone={daemonTone[d.status]} /> {d.status}
                </Badge>
              ),
            },
            { name: "Tags", cell: (d) => <Tags of={d.tags} /> },
            { name: "Path", cell: (d) => <DaemonPath peer={mesh.data?.peers.find((p) => p.id === d.id)} /> },
            { name: "Job", cell: (d) => <CurrentJob daemon={d} /> },
            { name: "Version", cell: (d) => d.version, className: mono },
            { name: "Last seen", cell: (d) => <Ago at={d.last_seen_at} /> },
          ]}
        />
      )}
    </Card>
  );
}

// NoDaemons tells template admins that builds must wait. Other users see only their own provisioners, not
// the shared ones.
function NoDaemons({ all }: { all: boolean }) {
  if (!mayEditTemplates(useMe())) {
    return (
      <Empty icon={<Cpu />} title="You have no provisioners of your own">
        Shared provisioners run your builds, but only template admins can see them. A waiting build says why it waits.
      </Empty>
    );
  }
  return (
    <Empty icon={<Cpu />} title={all ? "No provisioners" : "No provisioner is online"}>
      Builds wait until a provisioner is online. Start the server with built-in provisioners, or run{" "}
      <code>coder provisioner start</code> on another machine.
    </Empty>
  );
}

function DaemonPath({ peer }: { peer: MeshPeer | undefined }) {
  if (!peer?.connected) return "–";
  return (
    <>
      {peer.path} {peer.latency_ms > 0 && <span className="text-muted">{duration(peer.latency_ms)}</span>}
    </>
  );
}

function CurrentJob({ daemon: { current_job: job } }: { daemon: ProvisionerDaemon }) {
  if (!job) return <span className="text-muted">None</span>;
  return (
    <>
      {job.template_display_name || job.template_name} <Badge tone={jobTone[job.status] ?? "plain"}>{job.status}</Badge>
    </>
  );
}
