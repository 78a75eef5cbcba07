// The provisioners' queue: what runs, what waits and why.
import { useMutation, useQuery } from "@tanstack/react-query";
import { X } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { send } from "~/api/client";
import { orgPath, queries } from "~/api/queries";
import type { ProvisionerJob } from "~/api/types";
import { duration, since, words } from "~/lib/format";
import { useNow } from "~/lib/hooks";
import { paths } from "~/lib/path";
import { useTemplateRef } from "~/lib/template-ref";
import { jobTone } from "./status";
import { Table } from "./table";
import { Badge, Button, Card, Pending, Tags } from "./ui";

export function JobQueue({ organization }: { organization?: string | undefined }) {
  const jobs = useQuery(queries.jobs(organization));
  const [all, showAll] = useState(false);
  // One mutation serves all rows. It shows the progress and error of the latest cancellation.
  const cancel = useMutation({
    mutationFn: (id: string) => send("PATCH", `${orgPath(organization)}/provisionerjobs/${id}/cancel`),
  });
  const list = jobs.data ?? [];
  const open = list.filter((j) => !j.completed_at);
  const shown = all ? list : open;
  return (
    <Card
      flush
      title={`Jobs${open.length ? ` (${open.length})` : ""}`}
      actions={
        <Button small look="quiet" aria-pressed={all} onClick={() => showAll(!all)}>
          {all ? "Hide finished jobs" : "Show finished jobs"}
        </Button>
      }
    >
      <Pending query={jobs} what="jobs" />
      {jobs.data && shown.length === 0 && <p className="px-4 py-6 text-center text-muted">No jobs.</p>}
      {shown.length > 0 && (
        <Table
          label="Jobs"
          rows={shown}
          id={(j) => j.id}
          columns={[
            { name: "Job", cell: (j) => words(j.type.replace("template_version_", "template ")) },
            { name: "Target", cell: (j) => <JobTarget job={j} /> },
            {
              name: "Status",
              cell: (j) => <JobStatus job={j} error={cancel.variables === j.id ? cancel.error : null} />,
              className: "max-w-64",
            },
            { name: "Tags", cell: (j) => <Tags of={j.tags} /> },
            { name: "Provisioner", cell: (j) => j.worker_name || "–" },
            { name: "Duration", cell: (j) => <JobTime job={j} />, className: "tabular-nums" },
            {
              name: "Actions",
              action: true,
              cell: (j) =>
                !j.completed_at && (
                  <Button
                    small
                    busy={cancel.isPending && cancel.variables === j.id}
                    onClick={() => cancel.mutate(j.id)}
                    aria-label={`Cancel the job for ${j.metadata.workspace_name ?? templateOf(j)}`}
                  >
                    <X /> Cancel
                  </Button>
                ),
            },
          ]}
        />
      )}
    </Card>
  );
}

const templateOf = (job: ProvisionerJob) => job.metadata.template_display_name || job.metadata.template_name;

function JobTarget({ job: { metadata }, job }: { job: ProvisionerJob }) {
  const ref = useTemplateRef();
  return (
    <>
      {metadata.workspace_name ??
        (templateOf(job) && (
          <Link
            className="hover:underline"
            href={paths.template(
              ref({ id: metadata.template_id, name: metadata.template_name, organization_id: job.organization_id }),
            )}
          >
            {templateOf(job)}
          </Link>
        ))}
      <span className="block font-mono text-xs text-muted">{metadata.template_version_name}</span>
    </>
  );
}

function JobStatus({ job: j, error }: { job: ProvisionerJob; error: Error | null }) {
  return (
    <>
      <Badge tone={jobTone[j.status] ?? "plain"}>
        {j.status}
        {j.status === "pending" && j.queue_position > 0 && ` ${j.queue_position} of ${j.queue_size}`}
      </Badge>
      {(j.status === "pending" || j.waiting_reason) && (
        <span className="block text-[13px] text-warn">
          {j.waiting_reason || "waits for a free provisioner"} {j.waiting_remedy}
        </span>
      )}
      {j.error && (
        <span className="block truncate text-[13px] text-bad" title={j.error}>
          {j.error}
        </span>
      )}
      {error && <span className="block text-[13px] text-bad">{error.message}</span>}
    </>
  );
}

function JobTime({ job: j }: { job: ProvisionerJob }) {
  const now = useNow(1000, !j.completed_at);
  const begun = j.started_at ?? j.created_at;
  return j.completed_at ? duration(since(begun, j.completed_at)) : duration(now - Date.parse(begun));
}
