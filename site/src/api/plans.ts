// What an update would change: a plan of the template's version with the workspace's state and the values of the form.
import { queryOptions } from "@tanstack/react-query";
import { get, post, send } from "./client";
import type { ParameterValue, PlannedChange, ProvisionerJob, Workspace } from "./types";

// How often the plan is read, in ms: no event announces how it goes on.
const every = 500;

// lastLines is how many lines of its log a plan that failed shows.
const lastLines = 20;

const pause = (signal: AbortSignal) =>
  new Promise<void>((resolve, reject) => {
    const timer = setTimeout(resolve, every);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    });
  });

// PlanFailed says why there is no plan, with the end of its log.
export class PlanFailed extends Error {
  readonly log: string[];

  constructor(message: string, log: string[]) {
    super(message);
    this.log = log;
  }
}

// plan is what the update to a version would change, with the values. It is made once and never repeated on its own. It
// is canceled when no page shows it any more. onJob is told what becomes of it meanwhile.
export const plan = (w: Workspace, version: string, values: ParameterValue[], onJob: (job: ProvisionerJob) => void) =>
  queryOptions({
    queryKey: ["plan", w.id, version, values],
    queryFn: ({ signal }) => planned(w, version, values, onJob, signal),
    staleTime: "static",
    gcTime: 0,
    retry: false,
    refetchOnReconnect: false,
  });

async function planned(
  w: Workspace,
  version: string,
  values: ParameterValue[],
  onJob: (job: ProvisionerJob) => void,
  signal: AbortSignal,
): Promise<PlannedChange[]> {
  let made = await post("workspaces/{workspace}/plan", {
    workspace: w.id,
    body: { template_version_id: version, rich_parameter_values: values },
  });
  const at = { workspace: w.id, job: made.id };
  try {
    while (!made.job.completed_at) {
      onJob(made.job);
      await pause(signal);
      made = await get("workspaces/{workspace}/plan/{job}", { ...at, signal });
    }
  } catch (err) {
    if (signal.aborted) await send("PATCH workspaces/{workspace}/plan/{job}/cancel", at);
    throw err;
  }
  if (made.job.status === "succeeded") return made.changes;
  const log = await get("workspaces/{workspace}/plan/{job}/logs", { ...at, signal });
  throw new PlanFailed(
    made.job.status === "canceled" ? "The plan was canceled." : (made.job.error ?? ""),
    log.slice(-lastLines).map((line) => line.output),
  );
}
