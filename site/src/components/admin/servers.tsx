// The servers of the deployment, their links, and what to do about them.
import { Link } from "wouter";
import type { AwaitedJob, HealthSeverity, ServerHealth, ServerLink } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Card } from "~/components/ui/card";
import { Left } from "~/components/ui/left";
import { Note } from "~/components/ui/note";
import { Table } from "~/components/ui/table";
import type { Tone } from "~/components/ui/tone";
import { duration, words } from "~/lib/format";
import { paths } from "~/lib/path";

const noteTones: Record<HealthSeverity, "warn" | "bad"> = { ok: "warn", warning: "warn", error: "bad" };

const ms = (value: number) => (value > 0 ? duration(value) : "–");

// offset is how far a clock is ahead of the database's, or behind it.
const offset = (value: number) =>
  value === 0 ? "equal" : `${duration(Math.abs(value))} ${value > 0 ? "ahead" : "behind"}`;

function state(server: ServerHealth): { tone: Tone; text: string } {
  if (server.findings.some((f) => f.code === "server_silent")) return { tone: "bad", text: "silent" };
  if (server.stopping) return { tone: "accent", text: "stopping" };
  if (!server.answered) return { tone: "bad", text: "no answer" };
  if (server.findings.some((f) => f.severity === "error")) return { tone: "bad", text: "error" };
  return server.findings.length > 0 ? { tone: "warn", text: "warning" } : { tone: "ok", text: "ok" };
}

function State({ server }: { server: ServerHealth }) {
  const { tone, text } = state(server);
  return <Badge tone={tone}>{text}</Badge>;
}

// Stopping shows the builds for which servers wait that were told to stop, and who began them.
export function Stopping({ of: servers }: { of: ServerHealth[] }) {
  const stopping = servers.filter((s) => s.stopping);
  if (stopping.length === 0) return null;
  const rows = stopping.flatMap((s) => s.awaits.map((job) => ({ ...job, server: s.name })));
  const free = stopping.filter((s) => s.awaits.length === 0).map((s) => s.name);
  return (
    <Card title="Servers that are stopping" flush>
      {free.length > 0 && (
        <p className="px-4 py-3">
          {free.join(", ")} {free.length === 1 ? "waits" : "wait"} for no build, only for people and workspaces to move
          to other servers.
        </p>
      )}
      {rows.length > 0 && (
        <Table
          label="Servers that are stopping"
          rows={rows}
          id={(j) => j.id}
          columns={[
            { name: "Server", cell: (j) => <span className="break-all">{j.server}</span>, className: "font-medium" },
            { name: "Waits for", cell: (j) => <Awaited job={j} /> },
            { name: "Begun by", cell: (j) => j.initiator },
            { name: "Provisioner", cell: (j) => <span className="break-all">{j.provisioner}</span> },
            { name: "Interrupted", cell: (j) => <Left until={j.interrupted_at} />, className: "tabular-nums" },
          ]}
        />
      )}
    </Card>
  );
}

function Awaited({ job: j }: { job: AwaitedJob }) {
  if (!j.workspace) return <>{[words(j.type.replace("template_version_", "template ")), j.template].join(" ")}</>;
  return (
    <Link className="hover:underline" href={paths.build(j.owner, j.workspace, j.build_number)}>
      {j.owner}/{j.workspace}: {j.transition}
    </Link>
  );
}

// Servers shows each server and the links between them.
export function Servers({ of: servers }: { of: ServerHealth[] }) {
  const names = new Map(servers.map((s) => [s.id, s.name]));
  const links = servers.flatMap((from) =>
    from.links.map((link) => ({ ...link, key: `${from.id} ${link.server_id}`, from: from.name })),
  );
  const name = (id: string) => names.get(id) ?? id.slice(0, 8);
  return (
    <>
      <Card title="All servers" flush>
        <Table
          label="All servers"
          rows={servers}
          id={(s) => s.id}
          columns={[
            {
              name: "Server",
              cell: (s) => (
                <span className="flex flex-wrap items-center gap-x-2">
                  <span className="font-medium break-all">{s.name}</span>
                  <code className="text-[13px] text-muted" title={s.id}>
                    {s.id.slice(0, 8)}
                  </code>
                  {s.reporter && <Badge>this report</Badge>}
                </span>
              ),
            },
            { name: "State", cell: (s) => <State server={s} /> },
            { name: "Replica URL", cell: (s) => <span className="break-all">{s.replica_url}</span> },
            { name: "Version", cell: (s) => s.version },
            { name: "Region", cell: (s) => s.region || "–" },
            { name: "Started", cell: (s) => <Ago at={s.started_at} /> },
            { name: "Last seen", cell: (s) => <Ago at={s.last_seen_at} /> },
            { name: "Clock", cell: (s) => (s.answered ? offset(s.clock_difference_ms) : "–") },
            { name: "Database", cell: (s) => ms(s.database_latency_ms), className: "tabular-nums" },
          ]}
        />
        {servers.some((s) => s.findings.length > 0) && (
          <ul className="flex flex-col gap-3 border-t border-line p-4" aria-label="Findings about servers">
            {servers.flatMap((s) =>
              s.findings.map((f) => (
                <li key={`${s.id} ${f.code} ${f.message}`}>
                  <Note tone={noteTones[f.severity]} title={f.message}>
                    {f.remedy} <code className="text-[13px]">{f.code}</code>
                  </Note>
                </li>
              )),
            )}
          </ul>
        )}
      </Card>
      <Card title="Links between servers" flush>
        <Table
          label="Links between servers"
          rows={links}
          id={(l) => l.key}
          columns={[
            { name: "From", cell: (l) => l.from, className: "font-medium" },
            { name: "To", cell: (l) => name(l.server_id) },
            { name: "Link", cell: (l) => <Up is={l.connected} /> },
            { name: "Up since", cell: (l) => <Ago at={l.since} /> },
            { name: "Round trip", cell: (l) => ms(l.latency_ms), className: "tabular-nums" },
            { name: "Messages", cell: (l) => messages(l), className: "tabular-nums" },
            { name: "Relay", cell: (l) => <Up is={l.relay_connected} /> },
          ]}
        />
      </Card>
    </>
  );
}

const Up = ({ is }: { is: boolean }) => <Badge tone={is ? "ok" : "bad"}>{is ? "up" : "down"}</Badge>;

const messages = (l: ServerLink) => `${l.messages_sent} sent, ${l.messages_received} received`;
