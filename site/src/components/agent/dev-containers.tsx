// The dev containers that an agent starts, with their state and a way to build them again.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { AgentDevcontainer, DevcontainerStatus, WorkspaceAgent } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Confirm } from "~/components/ui/dialog";
import { Pending } from "~/components/ui/pending";
import { Dot } from "~/components/ui/status";
import { sentence } from "~/lib/format";

const tones: Record<DevcontainerStatus, "ok" | "accent" | "bad" | "plain"> = {
  running: "ok",
  starting: "accent",
  error: "bad",
  stopped: "plain",
};

export function DevContainers({ agent, enabled }: { agent: WorkspaceAgent; enabled: boolean }) {
  const found = useQuery(queries.containers(agent.id));
  if (!found.data) return <Pending query={found} what="dev containers" />;
  return (
    <ul aria-label={`Dev containers of ${agent.name}`} className="flex flex-col gap-2">
      {found.data.devcontainers.map((d) => (
        <DevContainer key={d.id} agent={agent} container={d} enabled={enabled} />
      ))}
    </ul>
  );
}

interface Props {
  agent: WorkspaceAgent;
  container: AgentDevcontainer;
  enabled: boolean;
}

function DevContainer({ agent, container: d, enabled }: Props) {
  const [asking, ask] = useState(false);
  return (
    <li className="flex flex-col gap-1 rounded-md border border-line px-3 py-2">
      <div className="flex flex-wrap items-center gap-2">
        <span className="font-medium">{d.name}</span>
        <Badge tone={tones[d.status] ?? "plain"}>
          <Dot tone={tones[d.status] ?? "plain"} pulse={d.status === "starting"} /> {d.status}
        </Badge>
        <span className="min-w-0 flex-1 text-[13px] break-all text-muted">
          {d.workspace_folder}
          {d.container && ` · ${d.container.name}`}
        </span>
        {enabled && (
          <Button small aria-label={`Recreate ${d.name}`} onClick={() => ask(true)}>
            Recreate
          </Button>
        )}
      </div>
      {d.error && <p className="text-[13px] break-words text-bad">{sentence(d.error)}</p>}
      {asking && (
        <Confirm
          title={`Recreate the dev container ${d.name}?`}
          action="Recreate"
          onConfirm={() =>
            send("POST workspaceagents/{workspaceagent}/containers/devcontainers/{devcontainer}/recreate", {
              workspaceagent: agent.id,
              devcontainer: d.id,
            })
          }
          onClose={() => ask(false)}
        >
          Sessions in it end. Its files are lost, except those in the project's folder and in volumes.
        </Confirm>
      )}
    </li>
  );
}
