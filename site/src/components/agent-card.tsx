// One agent of a running workspace: how it is, what it offers, and how to get in.
import { Tabs } from "radix-ui";
import type { ReactNode } from "react";
import type { Workspace, WorkspaceAgent } from "~/api/types";
import { sentence } from "~/lib/format";
import { Apps } from "./agent-apps";
import { Connect } from "./agent-connect";
import { AgentLogs } from "./agent-logs";
import { Ports } from "./agent-ports";
import { ConnectionPath } from "./connection-path";
import { Metadata } from "./metadata";
import { agentTrouble, Dot } from "./status";
import { Ago, Badge, Card, Facts } from "./ui";

const statusTone = { connected: "ok", connecting: "accent", disconnected: "bad", timeout: "bad" } as const;

export function AgentCard({ workspace, agent }: { workspace: Workspace; agent: WorkspaceAgent }) {
  const trouble = agentTrouble(agent);
  const up = agent.status === "connected" && workspace.latest_build.transition === "start";
  const mine = workspace.permissions.connect;
  return (
    <Card
      title={
        <span className="flex flex-wrap items-center gap-2">
          {agent.name}
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
      <div className="flex flex-col gap-4">
        {trouble && (
          <p className="text-[13px] text-warn">
            {sentence(trouble)}
            {agent.status === "disconnected" && (
              <>
                {" "}
                Last seen <Ago at={agent.disconnected_at} />.
              </>
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
        {mine ? (
          <Apps workspace={workspace} agent={agent} enabled={up} />
        ) : (
          <p className="text-[13px] text-muted">You cannot connect to this workspace: it is not shared with you.</p>
        )}
        {up && <Metadata agent={agent.id} />}
        <AgentTabs workspace={workspace} agent={agent} up={up} mine={mine} />
      </div>
    </Card>
  );
}

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
  const tabs: { key: string; label: string; content: ReactNode; own?: boolean }[] = [
    { key: "connect", label: "Connect", content: <Connect workspace={workspace} agent={agent} />, own: true },
    { key: "ports", label: "Ports", content: ports, own: true },
    { key: "logs", label: "Logs", content: <AgentLogs agent={agent} running={up || agent.status === "connecting"} /> },
    { key: "scripts", label: "Scripts", content: <Scripts agent={agent} /> },
    { key: "path", label: "Path", content: <ConnectionPath workspace={workspace} agent={agent} /> },
  ].filter((t) => mine || !t.own);
  return (
    <Tabs.Root defaultValue={tabs[0]!.key}>
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
