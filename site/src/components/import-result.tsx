// An import: its log, live, and when it fails the error at its place in the template.
import { useVersionLog } from "~/api/logs";
import type { JobLog, ProvisionerJob, TemplateVersion } from "~/api/types";
import { sentence } from "~/lib/format";
import { type Position, positionOf } from "~/lib/diagnostic";
import { Excerpt } from "./files";
import { JobLogView } from "./job-log";
import { jobTone } from "./status";
import { Badge, Card, Note } from "./ui";

// failureOf finds the place in the template that an import failed at: in its error, or in its log.
export function failureOf({ status, error }: ProvisionerJob, log: JobLog[]): Position | undefined {
  if (status !== "failed") return undefined;
  const failure = log.find((l) => l.log_level === "error" && positionOf(l.output))?.output ?? "";
  return positionOf(error ?? "") ?? positionOf(failure);
}

export function ImportResult({ version }: { version: TemplateVersion }) {
  const { job } = version;
  const log = useVersionLog(version.id, Boolean(job.completed_at));
  const at = failureOf(job, log.lines);
  return (
    <div className="flex min-w-0 flex-col gap-4">
      {job.error && <Note title="Import failed">{job.error}</Note>}
      {at && <Excerpt file={job.file_id} at={at} />}
      {job.waiting_reason && (
        <Note tone="warn" title={sentence(job.waiting_reason)}>
          {job.waiting_remedy}
        </Note>
      )}
      <Card flush title="Import" actions={<Badge tone={jobTone[job.status] ?? "plain"}>{job.status}</Badge>}>
        <JobLogView log={log} job={job} />
      </Card>
    </div>
  );
}
