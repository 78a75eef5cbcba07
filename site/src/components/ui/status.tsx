import type { ProvisionerJob, Workspace, WorkspaceAgent, WorkspaceBuild, WorkspaceStatus } from "~/api/types";
import { until } from "~/lib/format";
import { Badge } from "./badge";
import { cx } from "./cx";
import type { Tone } from "./tone";

const tone: Record<WorkspaceStatus, Tone> = {
  pending: "warn",
  starting: "accent",
  running: "ok",
  stopping: "accent",
  stopped: "plain",
  failed: "bad",
  canceling: "warn",
  canceled: "plain",
  deleting: "accent",
  deleted: "plain",
};

const busy: WorkspaceStatus[] = ["pending", "starting", "stopping", "canceling", "deleting"];

export const isBusy = (status: WorkspaceStatus) => busy.includes(status);

const allAgentsOf = (build: WorkspaceBuild): WorkspaceAgent[] => build.resources.flatMap((r) => r.agents ?? []);

// agentsOf lists the agents of a build without those that run in dev containers.
export const agentsOf = (build: WorkspaceBuild) => allAgentsOf(build).filter((a) => !a.parent_id);

// agentsIn lists the agents in the dev containers that an agent starts.
export const agentsIn = (build: WorkspaceBuild, parent: WorkspaceAgent) =>
  allAgentsOf(build).filter((a) => a.parent_id === parent.id);

// agentNamed is the agent with a name, wherever it runs; without a name it is the first.
export const agentNamed = (build: WorkspaceBuild, name: string | undefined) =>
  name ? allAgentsOf(build).find((a) => a.name === name) : agentsOf(build)[0];

// buildReasons say why a build was begun, if more than a person's wish is behind it.
export const buildReasons: Record<string, string> = {
  initiator: "",
  dashboard: "",
  cli: "from the command line",
  autostart: "by autostart",
  autostop: "by autostop",
  dormancy: "after inactivity",
  ssh_connection: "for an SSH session",
  vscode_connection: "for VS Code",
  jetbrains_connection: "for JetBrains",
  autodelete: "after inactivity",
};

// waitingOf says why a job does not run or go on; "" if there is nothing to say. It leaves a countdown to Left.
export function waitingOf(job: ProvisionerJob): string {
  if (!job.interrupted_at || Date.parse(job.interrupted_at) <= Date.now()) return job.waiting_reason ?? "";
  return `The server of the provisioner ${job.worker_name} is stopping. It waits for this job, and then interrupts it.`;
}

// reasonOf explains a workspace's state; "" when the state needs no explanation.
export function reasonOf(build: WorkspaceBuild): string {
  if (build.job.error) return build.job.error;
  if (build.status === "pending")
    return (
      build.job.waiting_reason ||
      (build.job.queue_position > 1
        ? `position ${build.job.queue_position} of ${build.job.queue_size} in the queue`
        : "waiting for a provisioner")
    );
  if (build.job.waiting_reason) return waitingOf(build.job);
  if (build.status === "running") return agentsOf(build).map(agentTrouble).find(Boolean) ?? "";
  return buildReasons[build.reason] ?? "";
}

// noteOf explains the state of a workspace in a list.
export function noteOf(w: Workspace): string {
  if (!w.dormant_at || !dormantIs.includes(w.latest_build.status)) return reasonOf(w.latest_build);
  return w.deleting_at ? `deleted ${until(w.deleting_at)} unless you wake it` : "";
}

// agentTrouble says why an agent cannot be used. What is wrong is the server's diagnosis.
export function agentTrouble(agent: WorkspaceAgent): string {
  if (!agent.health.healthy) return agent.health.reason ?? "agent is unhealthy";
  if (agent.external && agent.status === "connecting") return "agent has not been started on its machine";
  if (agent.status === "connecting") return "agent is connecting";
  return agent.lifecycle_state === "starting" ? "startup scripts are running" : "";
}

// isReady reports whether an agent is connected and its startup scripts have succeeded.
export const isReady = (agent: WorkspaceAgent) => agent.status === "connected" && agent.lifecycle_state === "ready";

function StatusBadge({ status, className }: { status: WorkspaceStatus; className?: string }) {
  return (
    <Badge tone={tone[status]} className={cx("capitalize", className)}>
      <Dot tone={tone[status]} pulse={isBusy(status)} /> {status}
    </Badge>
  );
}

// Of a dormant workspace these states say less than that it is dormant: what still runs is stopped at once.
const dormantIs: WorkspaceStatus[] = ["running", "stopped", "canceled"];

// WorkspaceBadge takes the agents into account: a running workspace may still need attention.
export function WorkspaceBadge({ workspace }: { workspace: Workspace }) {
  const { status } = workspace.latest_build;
  if (workspace.dormant_at && dormantIs.includes(status))
    return (
      <Badge tone="warn">
        <Dot tone="warn" /> Dormant
      </Badge>
    );
  if (status === "running" && !workspace.health.healthy)
    return (
      <Badge tone="warn">
        <Dot tone="warn" /> Running
      </Badge>
    );
  return <StatusBadge status={status} />;
}

const fills: Record<Tone, string> = {
  plain: "bg-muted",
  ok: "bg-ok",
  warn: "bg-warn",
  bad: "bg-bad",
  accent: "bg-accent",
};

export const Dot = ({ tone, pulse }: { tone: Tone; pulse?: boolean }) => (
  <span aria-hidden className={cx("size-1.5 shrink-0 rounded-full", fills[tone], pulse && "animate-pulse")} />
);

export const jobTone: Record<string, Tone> = {
  pending: "warn",
  running: "accent",
  succeeded: "ok",
  canceling: "warn",
  canceled: "plain",
  failed: "bad",
};

// JobBadge shows a job's status, which for an old build differs from its workspace's.
export function JobBadge({ status }: { status: string }) {
  const tone = jobTone[status] ?? "plain";
  return (
    <Badge tone={tone}>
      <Dot tone={tone} pulse={status === "running" || status === "canceling"} /> {status}
    </Badge>
  );
}
