// One agent of a running workspace: how it is, what it offers, and how to get in.
import { Tabs } from "radix-ui";
import { type ReactNode, useState } from "react";
import type { Workspace, WorkspaceAgent } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Facts } from "~/components/ui/facts";
import { agentsIn, agentTrouble, Dot } from "~/components/ui/status";
import { useMe } from "~/components/ui/user";
import { duration, sentence, since } from "~/lib/format";
import { Apps } from "./apps";
import { Connect } from "./connect";
import { ConnectionPath } from "./connection-path";
import { DevContainers } from "./dev-containers";
import { ExternalAgent } from "./external-agent";
import { AgentLogs } from "./logs";
import { Metadata } from "./metadata";
import { Ports } from "./ports";

const statusTone = { connected: "ok", connecting: "accent", disconnected: "bad", timeout: "bad" } as const;

export function AgentCard({ workspace, agent }: { workspace: Workspace; agent: WorkspaceAgent }) {
  const trouble = agentTrouble(agent);
  const up = agent.status === "connected" && workspace.latest_build.transition === "start";
  const mine = workspace.permissions.connect;
  const me = useMe().id;
  const running = workspace.latest_build.status === "running";
  return (
    <Card
      title={
        <span className="flex flex-wrap items-center gap-2">
          {agent.name}
          {agent.parent_id && <Badge>in a dev container</Badge>}
          <Badge tone={statusTone[agent.status]}>
            <Dot tone={statusTone[agent.status]} pulse={agent.status === "connecting"} /> {agent.status}
          </Badge>
          {agent.status === "connected" && (
            <Badge tone={agent.lifecycle_state === "ready" ? "plain" : "warn"}>
              {agent.lifecycle_state.replaceAll("_", " ")}
            </Badge>
          )}
        </span>
      }
      actions={
        <span className="text-[13px] text-muted">
          {agent.operating_system}/{agent.architecture}
          {agent.version && ` · ${agent.version}`}
        </span>
      }
    >
      <div className="@container flex flex-col gap-4">
        {trouble && (
          <p className="text-[13px] break-words text-warn">
            {sentence(trouble)}
            {agent.status === "disconnected" && (
              <>
                {" "}
                Last seen <Ago at={agent.disconnected_at} />.
              </>
            )}
            {agent.health.remedy && (
              <span className="block text-ink">
                {agent.health.remedy} <DocsLink to="troubleshooting#cannot-connect">Troubleshooting</DocsLink>
              </span>
            )}
            {agent.troubleshooting_url && /^https?:/.test(agent.troubleshooting_url) && (
              <>
                {" "}
                <a className="underline" href={agent.troubleshooting_url} rel="noreferrer noopener" target="_blank">
                  Troubleshoot
                </a>
              </>
            )}
          </p>
        )}
        {agent.status === "connected" && <Monitors agent={agent} />}
        {agent.external && me === workspace.owner_id && running && agent.status !== "connected" && (
          <ExternalAgent workspace={workspace} agent={agent} />
        )}
        {mine ? (
          <Apps workspace={workspace} agent={agent} enabled={up} />
        ) : (
          <p className="text-[13px] text-muted">You cannot connect to this workspace: it is not shared with you.</p>
        )}
        {agentsIn(workspace.latest_build, agent).length > 0 && <DevContainers agent={agent} enabled={up && mine} />}
        {up && <Metadata agent={agent.id} />}
        <AgentTabs workspace={workspace} agent={agent} up={up} mine={mine} />
      </div>
    </Card>
  );
}

// Monitors shows what has passed its threshold.
function Monitors({ agent }: { agent: WorkspaceAgent }) {
  const over = agent.monitors.filter((m) => m.over);
  if (over.length === 0) return null;
  return (
    <ul aria-label={`Warnings of ${agent.name}`} className="text-[13px] break-words text-warn">
      {over.map((m) => (
        <li key={m.path ?? ""}>
          {m.resource === "memory" ? "Memory" : `Volume ${m.path}`} is low: {m.percent}% were in use{" "}
          <Ago at={m.changed_at} />, and the threshold is {m.threshold}%.{" "}
          <DocsLink to="agent#memory-and-volumes">Memory and volumes</DocsLink>
        </li>
      ))}
    </ul>
  );
}

const hasStartupScripts = (agent: WorkspaceAgent) => agent.scripts.some((s) => s.run_on_start);

const startsOrFailed = (agent: WorkspaceAgent) =>
  hasStartupScripts(agent) && ["starting", "start_error", "start_timeout"].includes(agent.lifecycle_state);

const tabClass =
  "border-b-2 border-transparent px-2 py-1.5 text-muted data-[state=active]:border-accent data-[state=active]:text-ink";

function AgentTabs({
  workspace,
  agent,
  up,
  mine,
}: {
  workspace: Workspace;
  agent: WorkspaceAgent;
  up: boolean;
  mine: boolean;
}) {
  const ports = up ? (
    <Ports workspace={workspace} agent={agent} />
  ) : (
    <p className="text-muted">The workspace is not running.</p>
  );
  const shows = (name: WorkspaceAgent["display_apps"][number]) => mine && agent.display_apps.includes(name);
  const tabs: { key: string; label: string; content: ReactNode; hidden?: boolean }[] = [
    {
      key: "connect",
      label: "Connect",
      content: <Connect workspace={workspace} agent={agent} />,
      hidden: !shows("ssh_helper"),
    },
    { key: "ports", label: "Ports", content: ports, hidden: !shows("port_forwarding_helper") },
    { key: "logs", label: "Logs", content: <AgentLogs agent={agent} running={up || agent.status === "connecting"} /> },
    { key: "scripts", label: "Scripts", content: <Scripts agent={agent} /> },
    { key: "path", label: "Path", content: <ConnectionPath workspace={workspace} agent={agent} /> },
  ].filter((t) => !t.hidden);
  // The log is open while the startup scripts run and after they have failed, until the user decides.
  const [chosen, choose] = useState<string>();
  const first = tabs[0]!.key;
  const tab = chosen ?? (up && startsOrFailed(agent) ? "logs" : first);
  return (
    <Tabs.Root value={tab} onValueChange={choose}>
      {up && agent.lifecycle_state === "ready" && hasStartupScripts(agent) && (
        <div className="mb-2 flex flex-wrap items-center justify-between gap-2 text-[13px] text-muted">
          {agent.started_at && agent.ready_at
            ? `Startup scripts took ${duration(since(agent.started_at, agent.ready_at))}`
            : "Startup scripts have finished"}
          {first !== "logs" && (
            <Button
              small
              look="quiet"
              aria-expanded={tab === "logs"}
              onClick={() => choose(tab === "logs" ? first : "logs")}
            >
              {tab === "logs" ? "Hide startup log" : "Show startup log"}
            </Button>
          )}
        </div>
      )}
      <Tabs.List aria-label={`Agent ${agent.name}`} className="mb-3 flex flex-wrap gap-2 border-b border-line">
        {tabs.map(({ key, label }) => (
          <Tabs.Trigger key={key} value={key} className={tabClass}>
            {label}
          </Tabs.Trigger>
        ))}
      </Tabs.List>
      {tabs.map(({ key, content }) => (
        <Tabs.Content key={key} value={key}>
          {content}
        </Tabs.Content>
      ))}
    </Tabs.Root>
  );
}

function Scripts({ agent }: { agent: WorkspaceAgent }) {
  if (agent.scripts.length === 0) return <p className="text-muted">This agent has no scripts.</p>;
  return (
    <ul className="flex flex-col gap-2">
      {agent.scripts.map((s) => (
        <li key={s.id}>
          <details className="rounded-md border border-line">
            <summary className="flex cursor-pointer flex-wrap items-center gap-2 px-3 py-1.5">
              <span className="font-medium">{s.display_name || "Script"}</span>
              {s.run_on_start && <Badge>runs at start</Badge>}
              {s.run_on_stop && <Badge>runs at stop</Badge>}
              {s.cron && <Badge>{s.cron}</Badge>}
              {s.start_blocks_login && <Badge tone="warn">sessions wait until it ends</Badge>}
            </summary>
            <div className="border-t border-line p-3">
              <Facts of={[["Timeout", s.timeout ? `${s.timeout / 1e9} s` : "None"]]} />
              <pre className="mt-2 max-h-72 overflow-auto rounded bg-raised p-2 text-[12.5px]" tabIndex={0}>
                {s.script}
              </pre>
            </div>
          </details>
        </li>
      ))}
    </ul>
  );
}
