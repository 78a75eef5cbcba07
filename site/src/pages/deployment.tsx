// What owners see first of the deployment: what runs and waits, who uses it, what it costs, and what serves it.
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { deploymentOverview } from "~/api/overview";
import type { AgentVersion, DeploymentOverview, OverviewDay, OverviewServer } from "~/api/types";
import { Costs } from "~/components/admin/costs";
import { Ago } from "~/components/ui/ago";
import { Bars } from "~/components/ui/bars";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Facts } from "~/components/ui/facts";
import { LinkButton } from "~/components/ui/link-button";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import { Table } from "~/components/ui/table";
import { isOwner, useMe } from "~/components/ui/user";
import { duration, plural } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

export default function Deployment() {
  useTitle("Deployment");
  const me = useMe();
  if (!isOwner(me))
    return (
      <Page title="Deployment">
        <Note tone="warn" title="Only owners can read the deployment's overview." />
      </Page>
    );
  return <Overview />;
}

function Overview() {
  const overview = useQuery(deploymentOverview());
  return (
    <Page
      title="Deployment"
      subtitle={
        overview.data && (
          <>
            Counted <Ago at={overview.data.collected_at} />
          </>
        )
      }
      actions={
        <>
          <DocsLink to="observability#overview">Overview</DocsLink>
          <LinkButton href="/health">Health</LinkButton>
          <LinkButton href={paths.deploymentSettings}>Settings</LinkButton>
        </>
      }
    >
      <Pending query={overview} what="overview" />
      {overview.data && (
        <>
          <Now of={overview.data} />
          <Days of={overview.data.days} />
          <Costs of={overview.data.costs} />
          <div className="grid gap-4 lg:grid-cols-2">
            <Servers of={overview.data.servers} />
            <Agents of={overview.data.agent_versions} />
          </div>
        </>
      )}
    </Page>
  );
}

const number = (n: number) => n.toLocaleString("en");

// Now shows the counts of this moment.
function Now({ of: { workspaces: w, queue: q, users: u } }: { of: DeploymentOverview }) {
  return (
    <div className="grid gap-4 md:grid-cols-3">
      <Card title="Workspaces">
        <Figure of={w.running} what={`running, of ${number(w.total)}`} />
        <Facts
          of={[
            ["Stopped", number(w.stopped)],
            ["Building", number(w.building)],
            ["In the queue", number(w.pending)],
            ["Failed", number(w.failed)],
            ["Dormant", number(w.dormant)],
            ["Prebuilt", number(w.prebuilt)],
          ]}
        />
      </Card>
      <Card title="Queue">
        <Figure of={q.waiting} what={q.waiting === 1 ? "job waits" : "jobs wait"} />
        <Facts
          of={[
            ["Oldest", q.waiting === 0 ? "none" : `waits for ${duration(q.oldest_waiting_seconds * 1000)}`],
            ["Running", number(q.running)],
            ["Provisioners", number(q.provisioners)],
          ]}
        />
      </Card>
      <Card title="Users">
        <Figure of={u.seen_last_hour} what="seen within the last hour" />
        <Facts
          of={[
            ["Active", number(u.active)],
            ["Dormant", number(u.dormant)],
            ["Suspended", number(u.suspended)],
          ]}
        />
      </Card>
    </div>
  );
}

const Figure = ({ of, what }: { of: number; what: string }) => (
  <p className="mb-3">
    <span className="text-2xl font-semibold tabular-nums">{number(of)}</span> <span className="text-muted">{what}</span>
  </p>
);

// local is the day's beginning: without a time, a date would be one in UTC.
const local = (d: OverviewDay) => `${d.date}T00:00`;

const sum = (days: OverviewDay[], of: (d: OverviewDay) => number) => days.reduce((n, d) => n + of(d), 0);

// Days shows what happened on each of the last days.
function Days({ of: days }: { of: OverviewDay[] }) {
  const builds = sum(days, (d) => d.builds);
  const failed = sum(days, (d) => d.failed);
  const plots: { title: string; total: ReactNode; unit: (n: number) => string; of: (d: OverviewDay) => number }[] = [
    {
      title: "Builds",
      total: `${plural(builds, "build")} ended, ${number(sum(days, (d) => d.canceled))} of them canceled`,
      unit: (n) => plural(n, "build"),
      of: (d) => d.builds,
    },
    {
      title: "Failed builds",
      total: failed === 0 ? "No build failed" : `${plural(failed, "build")} failed`,
      unit: (n) => plural(n, "failed build"),
      of: (d) => d.failed,
    },
    {
      title: "Active users",
      total: (
        <>
          Connected to a workspace, from the <DocsLink to="audit#insights">connection log</DocsLink>
        </>
      ),
      unit: (n) => plural(n, "user"),
      of: (d) => d.users,
    },
  ];
  return (
    <div className="grid gap-4 lg:grid-cols-3">
      {plots.map((p) => (
        <Card key={p.title} title={`${p.title}, last ${days.length} days`}>
          <Bars label={p.title} unit={p.unit} of={days.map((d) => ({ date: local(d), amount: p.of(d) }))} />
          <p className="mt-3 text-[13px] text-muted">
            {p.total}. Today: {number(p.of(days.at(-1)!))}.
          </p>
        </Card>
      ))}
    </div>
  );
}

function Servers({ of: servers }: { of: OverviewServer[] }) {
  return (
    <Card title={`Servers (${number(servers.length)})`} flush>
      <Table
        label="Servers"
        rows={servers}
        id={(s) => s.id}
        columns={[
          { name: "Replica URL", cell: (s) => s.replica_url, className: "break-all font-medium" },
          { name: "Version", cell: (s) => s.version, className: "break-all" },
          { name: "Region", cell: (s) => s.region || "–" },
          { name: "Started", cell: (s) => <Ago at={s.started_at} /> },
        ]}
      />
    </Card>
  );
}

function Agents({ of: versions }: { of: AgentVersion[] }) {
  const agents = versions.reduce((n, v) => n + v.agents, 0);
  return (
    <Card title={`Agents (${number(agents)})`} flush>
      {versions.length === 0 ? (
        <p className="px-4 py-6 text-center text-muted">No workspace has an agent.</p>
      ) : (
        <Table
          label="Versions of agents"
          rows={versions}
          id={(v) => v.version}
          columns={[
            { name: "Version", cell: (v) => v.version || "not connected yet", className: "break-all font-medium" },
            { name: "Agents", cell: (v) => number(v.agents), className: "tabular-nums" },
            { name: "Connected", cell: (v) => number(v.connected), className: "tabular-nums" },
          ]}
        />
      )}
    </Card>
  );
}
