// How a user's computer reaches an agent: commands to copy, and open ports.
import { useQuery } from "@tanstack/react-query";
import { ExternalLink } from "lucide-react";
import { type ReactNode, useState } from "react";
import { measured, queries } from "~/api/queries";
import type { Workspace, WorkspaceAgent } from "~/api/types";
import { portLink } from "~/lib/links";
import { CopyLine } from "./copy";
import { Button, buttonClass, Pending } from "./ui";

export function Connect({ workspace, agent }: { workspace: Workspace; agent: WorkspaceAgent }) {
  const ssh = useQuery(queries.sshConfig()).data;
  const several = workspace.latest_build.resources.flatMap((r) => r.agents ?? []).length > 1;
  const name = several ? `${workspace.name}.${agent.name}` : workspace.name;
  return (
    <div className="grid gap-3 lg:grid-cols-2">
      <Labelled label="SSH">
        <CopyLine label="SSH command" text={`coder ssh ${name}`} />
      </Labelled>
      <Labelled label="OpenSSH (needs coder config-ssh)">
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
        First run <code>coder login {location.origin}</code> on your computer. OpenSSH and editors also need{" "}
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

export function Ports({ workspace, agent }: { workspace: Workspace; agent: WorkspaceAgent }) {
  const ports = useQuery(measured(queries.ports(agent.id), 10_000)); // the server asks the agent
  const host = useQuery(queries.appsHost()).data?.host ?? "";
  const [number, setNumber] = useState("");
  if (ports.error || !ports.data) return <Pending query={ports} what="ports" />;
  const all = ports.data.ports;
  return (
    <div className="flex flex-col gap-3">
      {all.length === 0 ? (
        <p className="text-muted">No open ports. Programs that listen in the workspace appear here.</p>
      ) : (
        <ul className="flex flex-col divide-y divide-line">
          {all.map((p) => (
            <li key={p.port} className="flex items-center gap-3 py-1.5">
              <span className="w-14 font-mono">{p.port}</span>
              <span className="min-w-0 flex-1 truncate text-muted">{p.process_name || p.network}</span>
              {host ? (
                <a
                  className={buttonClass("plain", true)}
                  aria-label={`Open port ${p.port}`}
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
            Other port
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
