// The provisioners' queue: what runs, what waits and why.
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { X } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { send } from "~/api/client";
import { lists, pageOf, rowsPerPage } from "~/api/lists";
import { standard } from "~/api/queries";
import type { ProvisionerJob } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Left } from "~/components/ui/left";
import { Pager } from "~/components/ui/pager";
import { Pending } from "~/components/ui/pending";
import { jobTone, waitingOf } from "~/components/ui/status";
import { Table } from "~/components/ui/table";
import { Tags } from "~/components/ui/tags";
import { duration, since, words } from "~/lib/format";
import { useNow } from "~/lib/hooks";
import { paths } from "~/lib/path";
import { useTemplateRef } from "~/lib/template-ref";

export function JobQueue({ organization }: { organization?: string | undefined }) {
  const [all, showAll] = useState(false);
  const [page, setPage] = useState(0);
  const running = useQuery(lists.runningJobs(organization));
  const paged = useQuery({
    ...lists.jobs(organization, all ? "" : "pending", page),
    placeholderData: keepPreviousData,
  });
  // One mutation serves all rows. It shows the progress and error of the latest cancellation.
  const cancel = useMutation({
    mutationFn: (id: string) =>
      send("PATCH organizations/{organization}/provisionerjobs/{job}/cancel", {
        organization: organization ?? standard,
        job: id,
      }),
  });
  const { rows, count } = pageOf(paged.data, page);
  // Those that run come before those that wait.
  const first = all || page > 0 ? [] : (running.data ?? []);
  const shown = [...first, ...rows.filter((j) => !first.some((r) => r.id === j.id))];
  const open = (running.data?.length ?? 0) + count;
  return (
    <>
      <Card
        flush
        title={
          all || open === 0 ? "Jobs" : `Jobs (${open}${rows.length < count - page * rowsPerPage ? " or more" : ""})`
        }
        actions={
          <Button
            small
            look="quiet"
            aria-pressed={all}
            onClick={() => {
              showAll(!all);
              setPage(0);
            }}
          >
            {all ? "Hide finished jobs" : "Show finished jobs"}
          </Button>
        }
      >
        <Pending query={paged.error ? paged : running} what="jobs" />
        {running.data && paged.data && shown.length === 0 && (
          <p className="px-4 py-6 text-center text-muted">No jobs.</p>
        )}
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
                className: "max-w-md",
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
      <Pager page={page} size={rowsPerPage} rows={rows.length} count={count} onPage={setPage} />
    </>
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
          {waitingOf(j) || "waits for a free provisioner"} {j.interrupted_at && <Left until={j.interrupted_at} />}{" "}
          {j.waiting_remedy}
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
