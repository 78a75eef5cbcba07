// An import: its log, live, and when it fails the error at its place in the template.
import { type Followed, useVersionLog } from "~/api/logs";
import type { JobLog, ProvisionerJob, TemplateVersion } from "~/api/types";
import { Excerpt } from "~/components/code/files";
import { JobLogView } from "~/components/log/job";
import { Badge } from "~/components/ui/badge";
import { Card } from "~/components/ui/card";
import { Note } from "~/components/ui/note";
import { jobTone } from "~/components/ui/status";
import { type Position, problemsOf } from "~/lib/diagnostic";
import { sentence } from "~/lib/format";

// failuresOf lists the places in the template that an import failed at.
export const failuresOf = ({ status, error }: ProvisionerJob, log: JobLog[]): Position[] =>
  status === "failed"
    ? problemsOf(
        error ?? "",
        log.filter((l) => l.log_level === "error").map((l) => l.output),
      )
    : [];

export function ImportResult({ version }: { version: TemplateVersion }) {
  const { job } = version;
  const log = useVersionLog(version.id, Boolean(job.completed_at));
  const [at] = failuresOf(job, log.lines);
  return (
    <div className="flex min-w-0 flex-col gap-4">
      {job.error && <Note title="Import failed">{job.error}</Note>}
      {at && <Excerpt file={job.file_id} at={at} />}
      <ImportLog job={job} log={log} />
    </div>
  );
}

// ImportLog shows an import's log, and why it waits.
export function ImportLog({ job, log }: { job: ProvisionerJob; log: Followed<JobLog> }) {
  return (
    <>
      {job.waiting_reason && (
        <Note tone="warn" title={sentence(job.waiting_reason)}>
          {job.waiting_remedy}
        </Note>
      )}
      <Card flush title="Import" actions={<Badge tone={jobTone[job.status] ?? "plain"}>{job.status}</Badge>}>
        <JobLogView log={log} job={job} />
      </Card>
    </>
  );
}
