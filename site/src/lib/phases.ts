// What a build spent its time with: waiting, the provisioner's stages, the agents' way up.
import type { JobLog, WorkspaceBuild } from "~/api/types";
import { sections } from "./sections";

export interface Phase {
  name: string;
  kind: "wait" | "stage" | "agent" | "script";
  from: number; // ms since the epoch
  to: number | undefined; // undefined: not over yet
  failed?: boolean;
}

const at = (time: string | null | undefined) => (time && !time.startsWith("0001-") ? Date.parse(time) : undefined);

export function phases(build: WorkspaceBuild, lines: JobLog[]): Phase[] {
  const { job } = build;
  const created = Date.parse(job.created_at);
  const started = at(job.started_at);
  const out: Phase[] = [{ name: "Waiting for a provisioner", kind: "wait", from: created, to: started ?? at(job.completed_at) }];
  for (const s of sections(lines, job.completed_at)) {
    if (s.stage !== "Queued" && s.stage !== "") out.push({ name: s.stage, kind: "stage", from: Math.max(s.from, created), to: s.to, failed: s.failed });
  }
  if (build.transition !== "start") return out;
  for (const agent of build.resources.flatMap((r) => r.agents ?? [])) {
    const born = at(agent.created_at);
    const connected = at(agent.first_connected_at);
    if (born === undefined) continue;
    // An agent of an ended build that never came is not being waited for.
    if (connected !== undefined || agent.status === "connecting") out.push({ name: `${agent.name}: connecting`, kind: "agent", from: Math.max(born, created), to: connected });
    const begun = at(agent.started_at);
    if (begun !== undefined && connected !== undefined) {
      out.push({ name: `${agent.name}: startup scripts`, kind: "script", from: begun, to: at(agent.ready_at), failed: agent.lifecycle_state === "start_error" });
    }
  }
  return out;
}
