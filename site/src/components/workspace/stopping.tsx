// What ends a workspace, with the time that is left: a stop that comes soon, and one that runs.
import { useMutation, useQuery } from "@tanstack/react-query";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { ScheduledConsequence, Workspace } from "~/api/types";
import { Button } from "~/components/ui/button";
import { ErrorNote } from "~/components/ui/error-note";
import { Left } from "~/components/ui/left";
import { Note } from "~/components/ui/note";
import { agentsOf } from "~/components/ui/status";

const hour = 3_600_000; // ms

// useExtend gives a running workspace that stops at a time an hour more.
export const useExtend = (w: Workspace) =>
  useMutation({
    mutationFn: () =>
      send("PUT workspaces/{workspace}/extend", {
        workspace: w.id,
        body: { deadline: new Date(Math.max(Date.now(), Date.parse(w.latest_build.deadline!)) + hour).toISOString() },
      }),
  });

// StopsSoon counts down to a stop, and offers to postpone it.
export function StopsSoon({
  workspace: w,
  stop,
  at,
}: {
  workspace: Workspace;
  stop: ScheduledConsequence;
  at: string;
}) {
  const extend = useExtend(w);
  return (
    <Note tone="warn" title={stop.explanation}>
      <div className="flex flex-wrap items-center justify-between gap-x-4 gap-y-2">
        <span>
          <Left until={at} />. Running programs end then.
        </span>
        {w.permissions.update && !w.dormant_at && w.latest_build.deadline && (
          <Button small busy={extend.isPending} onClick={() => extend.mutate()}>
            Extend by 1 hour
          </Button>
        )}
      </div>
      <ErrorNote error={extend.error} />
    </Note>
  );
}

// How long an agent's stop scripts may take, in ms (agent/uplink.go).
const scriptsMayTake = 120_000;

// Stopping names the agents whose stop scripts run while the workspace stops or is deleted, and counts down how long
// they may. The agents are those of the build before.
export function Stopping({ workspace: w }: { workspace: Workspace }) {
  const { transition, job, build_number: number } = w.latest_build;
  const ends = transition !== "start" && job.status === "running" && number > 1;
  const before = useQuery({ ...queries.build(w.owner_name, w.name, number - 1), enabled: ends }).data;
  const agents = before ? agentsOf(before).filter((a) => a.lifecycle_state === "shutting_down") : [];
  if (!ends || !job.started_at || agents.length === 0) return null;
  const until = new Date(Date.parse(job.started_at) + scriptsMayTake).toISOString();
  return (
    <Note tone="accent" title={`Stop scripts run: ${agents.map((a) => a.name).join(", ")}`}>
      <Left until={until} /> at most. They end sooner if the template ends the machine before.
    </Note>
  );
}
