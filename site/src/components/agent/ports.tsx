// The ports of an agent: what listens, where it opens, and who may open it.
import { useMutation, useQuery } from "@tanstack/react-query";
import { ExternalLink } from "lucide-react";
import { useState } from "react";
import { send } from "~/api/client";
import { measured, queries } from "~/api/queries";
import type { AppShare, PortShare, PortShareProtocol, Workspace, WorkspaceAgent } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { Button, buttonClass } from "~/components/ui/button";
import { CopyButton, CopyLine } from "~/components/ui/copy";
import { ErrorNote } from "~/components/ui/error-note";
import { Select } from "~/components/ui/form";
import { Pending } from "~/components/ui/pending";
import { portLink } from "~/lib/links";
import { useRegion } from "~/lib/region";
import { levels } from "~/lib/share-levels";
import { sh } from "~/lib/shell";

const rank = (level: AppShare) => levels.findIndex((l) => l.level === level);

interface Of {
  workspace: Workspace;
  agent: WorkspaceAgent;
}

export function Ports({ workspace, agent }: Of) {
  const ports = useQuery(measured(queries.ports(agent.id), 10_000)); // the server asks the agent
  const host = useQuery(queries.appsHost()).data?.host ?? "";
  const region = useRegion();
  const shares = useQuery({ ...queries.portShares(workspace.id), enabled: host !== "" });
  // The template may be hidden from the owner. The server knows its ceiling.
  const template = useQuery({ ...queries.templateByID(workspace.template_id), retry: false }).data;
  const off = useQuery(queries.organizationSharing(workspace.organization_id)).data?.sharing_disabled;
  const [number, setNumber] = useState("");
  if (ports.error || !ports.data) return <Pending query={ports} what="ports" />;
  const shared = new Map(shares.data?.shares.filter((s) => s.agent_name === agent.name).map((s) => [s.port, s]));
  const listening = new Map(ports.data.ports.map((p) => [p.port, p.process_name || "a program of another account"]));
  const all = [...new Set([...listening.keys(), ...shared.keys()])].sort((a, b) => a - b);
  const ceiling = off ? "owner" : (template?.max_port_share_level ?? "public");
  return (
    <div className="flex flex-col gap-3">
      <ErrorNote error={shares.error} />
      {all.length === 0 ? (
        <p className="text-muted">No open ports. Programs that listen in the workspace appear here.</p>
      ) : (
        <ul className="flex flex-col divide-y divide-line">
          {all.map((port) => (
            <li key={port} className="flex flex-wrap items-center gap-x-3 gap-y-1 py-1.5">
              <span className="w-14 font-mono">{port}</span>
              <span className="min-w-0 flex-1 truncate text-muted max-sm:basis-3/4">
                {listening.get(port) ?? "Nothing listens"}
              </span>
              {host ? (
                <>
                  <Level {...{ workspace, agent, port, ceiling }} share={shared.get(port)} />
                  <CopyButton
                    label={`Copy link to port ${port}`}
                    text={portLink(workspace, agent, port, host, region)}
                  />
                  <a
                    className={buttonClass("plain", true)}
                    aria-label={`Open port ${port}`}
                    href={portLink(workspace, agent, port, host, region)}
                    target="_blank"
                    rel="noopener noreferrer"
                  >
                    Open <ExternalLink aria-hidden />
                  </a>
                </>
              ) : (
                <CopyLine
                  label={`command for port ${port}`}
                  text={sh`coder port-forward ${workspace.name} --tcp ${port}`}
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
            open(portLink(workspace, agent, Number(number), host, region), "_blank", "noopener");
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
      {host && ceiling !== "public" && (
        <p className="text-[13px] text-muted">
          {off
            ? "Sharing is disabled in this organization."
            : ceiling === "owner"
              ? "The template does not allow ports to be shared further."
              : `The template allows ports to be shared with at most: ${levels[rank(ceiling)]!.who.toLowerCase()}.`}
        </p>
      )}
    </div>
  );
}

interface LevelProps extends Of {
  port: number;
  share: PortShare | undefined;
  ceiling: AppShare;
}

// Level shows who may open a port. Users who may share the workspace change it; those who may only withdraw lower it.
function Level({ workspace, agent, port, share, ceiling }: LevelProps) {
  const level = share?.share_level ?? "owner";
  const protocol = share?.protocol ?? "http";
  const change = useMutation({
    mutationFn: (to: { level: AppShare; protocol: PortShareProtocol }): Promise<unknown> =>
      to.level === "owner"
        ? send("DELETE workspaces/{workspace}/port-share", {
            workspace: workspace.id,
            body: { agent_name: agent.name, port },
          })
        : send("POST workspaces/{workspace}/port-share", {
            workspace: workspace.id,
            body: { agent_name: agent.name, port, share_level: to.level, protocol: to.protocol },
          }),
    // The server announces the change, but the select must not jump back until then.
    onSettled: (_data, _err, _to, _result, context) =>
      context.client.invalidateQueries({ queryKey: queries.portShares(workspace.id).queryKey }),
  });
  if (!workspace.permissions.withdraw) return level === "owner" ? null : <Badge>{levels[rank(level)]!.who}</Badge>;
  const shown = change.isPending ? change.variables.level : level;
  const highest = workspace.permissions.share ? ceiling : level;
  return (
    <span className="flex flex-wrap items-center gap-2">
      {shown !== "owner" && (
        <Select
          aria-label={`Protocol of port ${port}`}
          className="h-7! w-auto! text-[13px]"
          value={protocol}
          disabled={change.isPending}
          onChange={(e) => change.mutate({ level, protocol: e.target.value as PortShareProtocol })}
        >
          <option value="http">HTTP</option>
          <option value="https">HTTPS</option>
        </Select>
      )}
      <Select
        aria-label={`Who may open port ${port}`}
        className="h-7! w-auto! text-[13px]"
        value={shown}
        disabled={change.isPending}
        onChange={(e) => change.mutate({ level: e.target.value as AppShare, protocol })}
      >
        {levels.map((l) => (
          <option key={l.level} value={l.level} disabled={rank(l.level) > rank(highest)}>
            {l.who}
          </option>
        ))}
      </Select>
      <ErrorNote error={change.error} />
    </span>
  );
}
