// How a template is used: its users by day, how long they were connected, how near to it, and by what.
import { useQuery } from "@tanstack/react-query";
import { queries } from "~/api/queries";
import type { Template } from "~/api/types";
import { Bars } from "~/components/ui/bars";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { Pending } from "~/components/ui/pending";
import { Table } from "~/components/ui/table";
import { duration, plural } from "~/lib/format";

const days = 30;

// midnight is the end of today, in the browser's time zone.
const midnight = () => new Date(new Date().setHours(24, 0, 0, 0));
const daysBefore = (end: Date, n: number) => new Date(end.getTime() - n * 24 * 3600_000).toISOString();

const millis = (ms: number | undefined) =>
  ms === undefined ? "unknown" : `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;

const length = (seconds: number) => (seconds < 1 ? "less than 1 s" : duration(seconds * 1000));

export default function TemplateInsights({ template: t }: { template: Template }) {
  const end = midnight();
  const use = useQuery(queries.templateInsights(t.id, daysBefore(end, days), end.toISOString()));
  const activity = useQuery(queries.userActivity(t.id, daysBefore(end, days), end.toISOString()));
  const latency = useQuery(queries.userLatency(t.id, daysBefore(end, days), end.toISOString()));
  const waiting =
    [use, activity, latency].find((query) => query.error) ?? [use, activity, latency].find((q) => !q.data);
  if (!use.data || !activity.data || !latency.data) return <Pending query={waiting ?? use} what="insights" />;
  const apps = use.data.report?.apps_usage ?? [];
  const users = activity.data.report.users;
  const trips = new Map(latency.data.report.users.map((u) => [u.user_id, u.latency_ms]));
  return (
    <>
      <Card title={`Active users, last ${days} days`}>
        <Bars
          label="Active users"
          unit={(n) => plural(n, "user")}
          of={(use.data.interval_reports ?? []).map((r) => ({ date: r.start_time, amount: r.active_users }))}
        />
        <p className="mt-3 text-[13px] text-muted">
          {plural(use.data.report?.active_users ?? 0, "user")} connected to a workspace of this template. From the{" "}
          <DocsLink to="audit#insights">connection log</DocsLink>, as far back as it is kept.
        </p>
      </Card>
      <Card title="Users" flush>
        {users.length === 0 ? (
          <Empty title="No connections in this time" />
        ) : (
          <Table
            label="Activity of users"
            rows={users}
            id={(u) => u.user_id}
            columns={[
              { name: "User", cell: (u) => u.username },
              { name: "Connected for", cell: (u) => length(u.seconds) },
              { name: "Round trip", cell: (u) => millis(trips.get(u.user_id)?.p50) },
              { name: "95 % below", cell: (u) => millis(trips.get(u.user_id)?.p95) },
            ]}
          />
        )}
      </Card>
      {apps.length > 0 && (
        <Card title="Apps" flush>
          <Table
            label="Use of apps"
            rows={apps}
            id={(a) => `${a.type} ${a.slug}`}
            columns={[
              { name: "App", cell: (a) => a.display_name },
              { name: "Connected for", cell: (a) => length(a.seconds) },
              { name: "Connections", cell: (a) => a.times_used.toLocaleString("en") },
            ]}
          />
        </Card>
      )}
    </>
  );
}
