// One agent of a running workspace: how it is, what it offers, and how to get in.
import { useQuery } from "@tanstack/react-query";
import { Braces, ExternalLink, SquareTerminal } from "lucide-react";
import { Tabs } from "radix-ui";
import { type ReactNode, useState } from "react";
import { send } from "~/api/client";
import { measured, queries } from "~/api/queries";
import type { CreateTokenResponse, Workspace, WorkspaceAgent, WorkspaceApp } from "~/api/types";
import { appLink, editorLink, jetbrainsLink, portLink, wantsToken, withToken } from "~/lib/links";
import { paths } from "~/lib/path";
import { AgentLogs } from "./agent-logs";
import { ConnectionPath } from "./connection-path";
import { CopyLine } from "./copy";
import { Metadata } from "./metadata";
import { agentTrouble, Dot } from "./status";
import { Ago, Badge, Button, buttonClass, Card, cx, ErrorNote, Facts, Icon } from "./ui";
import { useMe } from "./user";

const statusTone = { connected: "ok", connecting: "accent", disconnected: "bad", timeout: "bad" } as const;

export function AgentCard({ workspace, agent }: { workspace: Workspace; agent: WorkspaceAgent }) {
  const trouble = agentTrouble(agent);
  const up = agent.status === "connected" && workspace.latest_build.transition === "start";
  const mine = useMe().id === workspace.owner_id;
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
            {trouble[0]?.toUpperCase() + trouble.slice(1)}
            {agent.status === "disconnected" && (
              <>
                {" "}
                since <Ago at={agent.disconnected_at} />
              </>
            )}
            .
            {agent.troubleshooting_url && /^https?:/.test(agent.troubleshooting_url) && (
              <>
                {" "}
                <a className="underline" href={agent.troubleshooting_url} rel="noreferrer noopener" target="_blank">
                  What to do
                </a>
              </>
            )}
          </p>
        )}
        {mine ? (
          <Apps workspace={workspace} agent={agent} enabled={up} />
        ) : (
          <p className="text-[13px] text-muted">Only its owner can connect to a workspace.</p>
        )}
        {up && <Metadata agent={agent.id} />}
        <AgentTabs workspace={workspace} agent={agent} up={up} mine={mine} />
      </div>
    </Card>
  );
}

function Apps({ workspace, agent, enabled }: { workspace: Workspace; agent: WorkspaceAgent; enabled: boolean }) {
  const host = useQuery(queries.appsHost()).data?.host ?? "";
  const [error, setError] = useState<unknown>();
  const open = async (make: (token: string) => string) => {
    try {
      const { key } = await send<CreateTokenResponse>("POST", "users/me/keys");
      location.assign(make(key));
    } catch (err) {
      setError(err);
    }
  };
  const shows = (name: WorkspaceAgent["display_apps"][number]) => agent.display_apps.includes(name);
  const look = cx(buttonClass(), !enabled && "pointer-events-none opacity-50");
  const groups = new Map<string, WorkspaceApp[]>();
  for (const app of agent.apps.filter((a) => !a.hidden))
    groups.set(app.group ?? "", [...(groups.get(app.group ?? "") ?? []), app]);
  return (
    <div className="flex flex-col gap-2">
      <div className="flex flex-wrap gap-2">
        {shows("web_terminal") && (
          <a
            className={look}
            aria-disabled={!enabled}
            tabIndex={enabled ? 0 : -1}
            href={paths.terminal(workspace.owner_name, workspace.name, agent.name)}
            target="_blank"
            rel="noopener"
          >
            <SquareTerminal aria-hidden /> Terminal
          </a>
        )}
        {shows("vscode") && (
          <Button
            disabled={!enabled}
            onClick={() => void open((token) => editorLink("vscode", workspace, agent, token))}
          >
            <Braces /> VS Code
          </Button>
        )}
        {shows("vscode_insiders") && (
          <Button
            disabled={!enabled}
            onClick={() => void open((token) => editorLink("vscode-insiders", workspace, agent, token))}
          >
            <Braces /> VS Code Insiders
          </Button>
        )}
        {shows("ssh_helper") && (
          <Button disabled={!enabled} onClick={() => void open((token) => jetbrainsLink(workspace, agent, token))}>
            <Braces /> JetBrains
          </Button>
        )}
        {(groups.get("") ?? []).map((app) => (
          <AppLink key={app.id} {...{ workspace, agent, app, host, enabled }} open={(make) => void open(make)} />
        ))}
      </div>
      {[...groups]
        .filter(([name]) => name !== "")
        .map(([name, apps]) => (
          <div key={name} role="group" aria-label={name} className="flex flex-wrap items-center gap-2">
            <span className="text-[13px] text-muted">{name}</span>
            {apps.map((app) => (
              <AppLink key={app.id} {...{ workspace, agent, app, host, enabled }} open={(make) => void open(make)} />
            ))}
          </div>
        ))}
      <ErrorNote error={error} />
    </div>
  );
}

const shared = {
  owner: "",
  authenticated: "Any signed-in user can open it",
  organization: "Any member of the organization can open it",
  public: "Anyone on the network can open it",
};

function AppLink({
  workspace,
  agent,
  app,
  host,
  enabled,
  open,
}: {
  workspace: Workspace;
  agent: WorkspaceAgent;
  app: WorkspaceApp;
  host: string;
  enabled: boolean;
  open: (make: (token: string) => string) => void;
}) {
  const name = app.display_name || app.slug;
  const link = appLink(workspace, agent, app, host);
  const content = (
    <>
      <Icon src={app.icon} name={name} className="size-4" /> {name}
      {app.health === "initializing" && <Badge tone="accent">starting</Badge>}
      {app.health === "unhealthy" && <Badge tone="bad">unhealthy</Badge>}
      {app.sharing_level !== "owner" && <Badge title={shared[app.sharing_level]}>{app.sharing_level}</Badge>}
      {app.external && <ExternalLink aria-hidden />}
    </>
  );
  if (link === "")
    return (
      <Button disabled title="Subdomain apps are off. Start the server with --wildcard-access-url.">
        {content}
      </Button>
    );
  if (wantsToken(app))
    return (
      <Button
        disabled={!enabled}
        title={app.tooltip || undefined}
        onClick={() => open((token) => withToken(link, token))}
      >
        {content}
      </Button>
    );
  const off = !enabled && !app.external;
  return (
    <a
      href={link}
      title={app.tooltip || undefined}
      target={app.external && !/^https?:/.test(link) ? undefined : "_blank"}
      rel="noopener noreferrer"
      aria-disabled={off}
      tabIndex={off ? -1 : 0}
      className={cx(buttonClass(), off && "pointer-events-none opacity-50")}
    >
      {content}
    </a>
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

function Connect({ workspace, agent }: { workspace: Workspace; agent: WorkspaceAgent }) {
  const ssh = useQuery(queries.sshConfig()).data;
  const several = workspace.latest_build.resources.flatMap((r) => r.agents ?? []).length > 1;
  const name = several ? `${workspace.name}.${agent.name}` : workspace.name;
  return (
    <div className="grid gap-3 lg:grid-cols-2">
      <Labelled label="SSH">
        <CopyLine label="SSH command" text={`coder ssh ${name}`} />
      </Labelled>
      <Labelled label="OpenSSH, after coder config-ssh">
        <CopyLine
          label="OpenSSH command"
          text={
            ssh?.hostname_suffix
              ? `ssh ${agent.name}.${workspace.name}.${workspace.owner_name}.${ssh.hostname_suffix}`
              : `ssh ${ssh?.hostname_prefix ?? "coder."}${name}`
          }
        />
      </Labelled>
      <Labelled label="Forward a port">
        <CopyLine label="port-forward command" text={`coder port-forward ${name} --tcp 8080:8080`} />
      </Labelled>
      <Labelled label="Test the connection">
        <CopyLine label="ping command" text={`coder ping ${name}`} />
      </Labelled>
      <p className="text-[13px] text-muted lg:col-span-2">
        Once on your computer: <code>coder login {location.origin}</code>, and for OpenSSH and editors{" "}
        <code>coder config-ssh</code>.
        {agent.expanded_directory && (
          <>
            {" "}
            Sessions start in <code>{agent.expanded_directory}</code>.
          </>
        )}
      </p>
    </div>
  );
}

const Labelled = ({ label, children }: { label: string; children: ReactNode }) => (
  <div className="min-w-0">
    <p className="mb-1 text-[13px] text-muted">{label}</p>
    {children}
  </div>
);

function Ports({ workspace, agent }: { workspace: Workspace; agent: WorkspaceAgent }) {
  const ports = useQuery(measured(queries.ports(agent.id), 10_000)); // the server asks the agent
  const host = useQuery(queries.appsHost()).data?.host ?? "";
  const [number, setNumber] = useState("");
  if (ports.error) return <ErrorNote error={ports.error} />;
  const all = ports.data?.ports ?? [];
  return (
    <div className="flex flex-col gap-3">
      {all.length === 0 ? (
        <p className="text-muted">No ports are open in the workspace.</p>
      ) : (
        <ul className="flex flex-col divide-y divide-line">
          {all.map((p) => (
            <li key={p.port} className="flex items-center gap-3 py-1.5">
              <span className="w-14 font-mono">{p.port}</span>
              <span className="min-w-0 flex-1 truncate text-muted">{p.process_name || p.network}</span>
              {host ? (
                <a
                  className={buttonClass("plain", true)}
                  href={portLink(workspace, agent, p.port, host)}
                  target="_blank"
                  rel="noopener noreferrer"
                >
                  Open <ExternalLink aria-hidden />
                </a>
              ) : (
                <CopyLine
                  label={`command for port ${p.port}`}
                  text={`coder port-forward ${workspace.name} --tcp ${p.port}`}
                />
              )}
            </li>
          ))}
        </ul>
      )}
      {host && (
        <form
          className="flex items-end gap-2"
          onSubmit={(e) => {
            e.preventDefault();
            open(portLink(workspace, agent, Number(number), host), "_blank", "noopener");
          }}
        >
          <label className="flex flex-col gap-1 text-[13px] text-muted">
            Another port
            <input
              type="number"
              min={1}
              max={65535}
              required
              value={number}
              onChange={(e) => setNumber(e.target.value)}
              className="h-8 w-28 rounded-md border border-edge bg-panel px-2 text-ink"
            />
          </label>
          <Button type="submit">Open</Button>
        </form>
      )}
    </div>
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
              {s.run_on_start && <Badge>at start</Badge>}
              {s.run_on_stop && <Badge>at stop</Badge>}
              {s.cron && <Badge>{s.cron}</Badge>}
              {s.start_blocks_login && <Badge tone="warn">sessions wait for it</Badge>}
            </summary>
            <div className="border-t border-line p-3">
              <Facts of={[["Time limit", s.timeout ? `${s.timeout / 1e9} s` : "none"]]} />
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
