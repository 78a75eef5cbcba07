// What a template version would make for a workspace: a dry run of the version with the workspace's values.
import { queryOptions } from "@tanstack/react-query";
import { get, post, send } from "./client";
import type { ParameterValue, ProvisionerJob, Workspace, WorkspaceResource } from "./types";

// How often the dry run is read, in ms: no event announces how it goes on.
const every = 500;

const pause = (signal: AbortSignal) =>
  new Promise<void>((resolve, reject) => {
    const timer = setTimeout(resolve, every);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    });
  });

// plan is the resources that a version makes with the values. It is made once and never repeated on its own. It is
// canceled when no page shows it any more. onJob is told what becomes of it meanwhile.
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
): Promise<WorkspaceResource[]> {
  let job = await post("templateversions/{templateversion}/dry-run", {
    templateversion: version,
    body: { workspace_name: w.name, rich_parameter_values: values },
  });
  const at = { templateversion: version, job: job.id };
  try {
    while (!job.completed_at) {
      onJob(job);
      await pause(signal);
      job = await get("templateversions/{templateversion}/dry-run/{job}", { ...at, signal });
    }
  } catch (err) {
    if (signal.aborted) await send("PATCH templateversions/{templateversion}/dry-run/{job}/cancel", at);
    throw err;
  }
  if (job.status !== "succeeded") throw new Error(job.error || "The plan was canceled.");
  return get("templateversions/{templateversion}/dry-run/{job}/resources", { ...at, signal });
}
