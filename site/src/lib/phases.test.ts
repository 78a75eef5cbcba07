import { expect, it } from "vitest";
import type { BuildTimings, JobLog, WorkspaceBuild } from "~/api/types";
import { phases } from "./phases";

const second = (n: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, n)).toISOString();
const line = (n: number, stage: string, log_level = "info") =>
  ({ id: n, created_at: second(n), stage, log_level, output: "" }) as JobLog;
const agent = {
  id: "a",
  name: "main",
  status: "connected",
  lifecycle_state: "ready",
  created_at: second(4),
  first_connected_at: second(6),
  started_at: second(6),
  ready_at: second(9),
};
const build = (job: object, more: object = agent) =>
  ({
    transition: "start",
    job: { created_at: second(0), started_at: second(1), completed_at: second(5), ...job },
    resources: [{ agents: [more] }],
  }) as unknown as WorkspaceBuild;
const timings = {
  provisioner_timings: [
    { started_at: second(0), ended_at: second(1), stage: "Queued", source: "server", action: "queue", resource: "" },
    {
      started_at: second(1),
      ended_at: second(2),
      stage: "Setting up",
      source: "provisioner",
      action: "run",
      resource: "",
    },
    {
      started_at: second(2),
      ended_at: second(5),
      stage: "Starting workspace",
      source: "provisioner",
      action: "run",
      resource: "",
    },
    {
      started_at: second(3),
      ended_at: second(5),
      stage: "Starting workspace",
      source: "provisioner",
      action: "create",
      resource: "docker_container.dev",
    },
    {
      started_at: second(2),
      ended_at: second(3),
      stage: "Starting workspace",
      source: "provisioner",
      action: "read",
      resource: "data.docker_image.base",
    },
  ],
  agent_connection_timings: [],
  agent_script_timings: [
    {
      started_at: second(6),
      ended_at: second(7),
      exit_code: 0,
      stage: "start",
      status: "ok",
      display_name: "Dotfiles",
      workspace_agent_id: "a",
      workspace_agent_name: "main",
    },
    {
      started_at: second(6),
      ended_at: second(9),
      exit_code: 1,
      stage: "start",
      status: "exit_failure",
      display_name: "",
      workspace_agent_id: "a",
      workspace_agent_name: "main",
    },
    {
      started_at: second(50),
      ended_at: second(59),
      exit_code: 0,
      stage: "cron",
      status: "ok",
      display_name: "Hourly",
      workspace_agent_id: "a",
      workspace_agent_name: "main",
    },
  ],
} as unknown as BuildTimings;

const seconds = (at: number | undefined) => (at === undefined ? "" : new Date(at).getUTCSeconds());

// What a phase says, short: name, when, and whether it failed.
const told = (b: WorkspaceBuild, lines: JobLog[], known?: BuildTimings) =>
  phases(b, lines, known).map(
    (p) => `${p.kind} ${p.name} ${seconds(p.from)}-${seconds(p.to)}${p.failed ? " failed" : ""}`,
  );

it("shows what the server has timed, resources below their stage, scripts by name", () => {
  expect(told(build({}), [line(1, "Setting up"), line(2, "Starting workspace", "error")], timings)).toEqual([
    "wait Waiting for a provisioner 0-1",
    "stage Setting up 1-2",
    "stage Starting workspace 2-5 failed",
    "resource data.docker_image.base read 2-3",
    "resource docker_container.dev created 3-5",
    "agent main: connecting 4-6",
    "script main: Dotfiles 6-7",
    "script main: script 6-9 failed",
  ]);
});

it("shows what is under way from the build and its log", () => {
  const running = build(
    { completed_at: null },
    {
      ...agent,
      first_connected_at: null,
      started_at: null,
      ready_at: null,
      status: "connecting",
      lifecycle_state: "created",
    },
  );
  expect(told(running, [line(1, "Setting up"), line(2, "Starting workspace")])).toEqual([
    "wait Waiting for a provisioner 0-1",
    "stage Setting up 1-2",
    "stage Starting workspace 2-",
    "agent main: connecting 4-",
  ]);
  expect(told(build({ started_at: null, completed_at: null }, { ...agent, created_at: null }), [])[0]).toBe(
    "wait Waiting for a provisioner 0-",
  );
  // Scripts that have not ended are not in the server's times.
  const starting = build({}, { ...agent, ready_at: null, lifecycle_state: "starting" });
  expect(
    told(starting, [], { ...timings, agent_script_timings: timings.agent_script_timings.slice(0, 1) }).slice(-2),
  ).toEqual(["script main: Dotfiles 6-7", "script main: startup scripts 6-"]);
});
