// The phases of a build: waiting, the provisioner's stages and their resources, the agents' start and their scripts.
// The server reports finished phases; running ones come from the build and its log.
import type { BuildTimings, JobLog, WorkspaceBuild } from "~/api/types";
import { sections } from "./sections";

export interface Phase {
  name: string;
  kind: "wait" | "stage" | "resource" | "agent" | "script";
  from: number; // ms since the epoch
  to: number | undefined; // undefined: not over yet
  failed?: boolean;
}

const at = (time: string | null | undefined) => (time && !time.startsWith("0001-") ? Date.parse(time) : undefined);

const verbs: Record<string, string> = { create: "created", destroy: "destroyed", update: "changed", read: "read" };

// phases lists them in order of their start, resources below their stage.
export function phases(build: WorkspaceBuild, lines: JobLog[], known?: BuildTimings): Phase[] {
  const created = Date.parse(build.job.created_at);
  const out: Phase[] = [
    {
      name: "Waiting for a provisioner",
      kind: "wait",
      from: created,
      to: at(build.job.started_at) ?? at(build.job.completed_at),
    },
  ];
  const resources = (known?.provisioner_timings ?? [])
    .filter((t) => t.resource !== "")
    .sort((a, b) => Date.parse(a.started_at) - Date.parse(b.started_at));
  for (const stage of stages(build, lines, known)) {
    out.push({ ...stage, from: Math.max(stage.from, created) });
    for (const r of resources.filter((t) => t.stage === stage.name)) {
      out.push({
        name: `${r.resource} ${verbs[r.action] ?? r.action}`,
        kind: "resource",
        from: Date.parse(r.started_at),
        to: Date.parse(r.ended_at),
      });
    }
  }
  if (build.transition === "start")
    for (const agent of build.resources.flatMap((r) => r.agents ?? [])) out.push(...ofAgent(agent, created, known));
  return out;
}

// stages come from the log during a build. Afterwards they come from the server's timings, because a log can be cut
// short; the log still tells which failed.
function stages(build: WorkspaceBuild, lines: JobLog[], known?: BuildTimings): Phase[] {
  const told = sections(lines, build.job.completed_at).filter((s) => s.stage !== "Queued" && s.stage !== "");
  const timed = (known?.provisioner_timings ?? []).filter((t) => t.resource === "" && t.source === "provisioner");
  if (!build.job.completed_at || timed.length === 0)
    return told.map((s) => ({ name: s.stage, kind: "stage", from: s.from, to: s.to, failed: s.failed }));
  return timed.map((t) => ({
    name: t.stage,
    kind: "stage",
    from: Date.parse(t.started_at),
    to: Date.parse(t.ended_at),
    failed: told.some((s) => s.stage === t.stage && s.failed),
  }));
}

type Agent = NonNullable<WorkspaceBuild["resources"][number]["agents"]>[number];

function ofAgent(agent: Agent, created: number, known?: BuildTimings): Phase[] {
  const out: Phase[] = [];
  const born = at(agent.created_at);
  const connected = at(agent.first_connected_at);
  // An agent of a finished build that never connected is no longer expected.
  if (born !== undefined && (connected !== undefined || agent.status === "connecting")) {
    out.push({ name: `${agent.name}: connecting`, kind: "agent", from: Math.max(born, created), to: connected });
  }
  const scripts = (known?.agent_script_timings ?? []).filter(
    (t) => t.workspace_agent_id === agent.id && t.stage === "start",
  );
  for (const t of scripts) {
    out.push({
      name: `${agent.name}: ${t.display_name || "script"}`,
      kind: "script",
      from: Date.parse(t.started_at),
      to: Date.parse(t.ended_at),
      failed: t.status !== "ok",
    });
  }
  const begun = at(agent.started_at);
  const ready = at(agent.ready_at);
  if (
    begun !== undefined &&
    connected !== undefined &&
    (ready === undefined ? agent.lifecycle_state === "starting" : scripts.length === 0)
  ) {
    out.push({
      name: `${agent.name}: startup scripts`,
      kind: "script",
      from: begun,
      to: ready,
      failed: agent.lifecycle_state === "start_error",
    });
  }
  return out;
}
