import { useMutation, useQuery } from "@tanstack/react-query";
import { Cpu, KeyRound, Plus, X } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { segment, send } from "~/api/client";
import { queries } from "~/api/queries";
import type {
  CreateProvisionerKeyRequest,
  CreateProvisionerKeyResponse,
  MeshPeer,
  ProvisionerDaemon,
  ProvisionerJob,
  ProvisionerKey,
} from "~/api/types";
import { CopyLine } from "~/components/copy";
import { Confirm, DoneDialog, FormDialog } from "~/components/dialog";
import { TextField } from "~/components/form";
import { Dot, jobTone } from "~/components/status";
import { parseTags, TagsInput } from "~/components/tags-input";
import { mono, Table } from "~/components/table";
import { Ago, Badge, Button, Card, Empty, IconButton, Note, Page, Pending, Tags } from "~/components/ui";
import { isOwner, mayEditTemplates, useMe } from "~/components/user";
import { duration, since, words } from "~/lib/format";
import { useNow, useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";

export default function Provisioners() {
  useTitle("Provisioners");
  const owner = isOwner(useMe());
  return (
    <Page title="Provisioners" subtitle="Run Terraform for template imports and workspace builds">
      <Daemons />
      <Queue />
      {owner && <Keys />}
    </Page>
  );
}

const daemonTone = { idle: "ok", busy: "accent", offline: "plain" } as const;

function Daemons() {
  const daemons = useQuery(queries.daemons());
  const mesh = useQuery(queries.mesh());
  const [all, showAll] = useState(false);
  const list = daemons.data ?? [];
  const shown = all ? list : list.filter((d) => d.status !== "offline");
  return (
    <Card
      flush
      title="Daemons"
      actions={
        list.length > list.filter((d) => d.status !== "offline").length && (
          <Button small look="quiet" onClick={() => showAll(!all)}>
            {all ? "Hide those offline" : "Show those offline"}
          </Button>
        )
      }
    >
      <Pending query={daemons} what="provisioners" />
      {daemons.data && shown.length === 0 && <NoDaemons all={all} />}
      {shown.length > 0 && (
        <Table
          label="Daemons"
          rows={shown}
          id={(d) => d.id}
          columns={[
            {
              name: "Name",
              cell: (d) => (
                <>
                  <span className="font-medium">{d.name}</span>
                  {d.key_name && d.key_name !== "built-in" && (
                    <span className="block text-[13px] text-muted">key {d.key_name}</span>
                  )}
                </>
              ),
            },
            {
              name: "Status",
              cell: (d) => (
                <Badge tone={daemonTone[d.status]}>
                  <Dot tone={daemonTone[d.status]} /> {d.status}
                </Badge>
              ),
            },
            { name: "Tags", cell: (d) => <Tags of={d.tags} /> },
            { name: "Path", cell: (d) => <DaemonPath peer={mesh.data?.peers.find((p) => p.id === d.id)} /> },
            { name: "Job", cell: (d) => <CurrentJob daemon={d} /> },
            { name: "Version", cell: (d) => d.version, className: mono },
            { name: "Last seen", cell: (d) => <Ago at={d.last_seen_at} /> },
          ]}
        />
      )}
    </Card>
  );
}

// NoDaemons tells template admins that builds must wait. Others see only their own provisioners and learn nothing of
// the shared ones.
function NoDaemons({ all }: { all: boolean }) {
  if (!mayEditTemplates(useMe())) {
    return (
      <Empty icon={<Cpu />} title="You have no provisioners of your own">
        Shared provisioners run your builds, but only template admins see them. A build that waits for one tells you so.
      </Empty>
    );
  }
  return (
    <Empty icon={<Cpu />} title={all ? "There are no provisioners" : "No provisioner is online"}>
      Builds wait until one is online. Start the server with built-in ones, or run <code>coder provisioner start</code>{" "}
      on another machine.
    </Empty>
  );
}

function DaemonPath({ peer }: { peer: MeshPeer | undefined }) {
  if (!peer?.connected) return "–";
  return (
    <>
      {peer.path} {peer.latency_ms > 0 && <span className="text-muted">{duration(peer.latency_ms)}</span>}
    </>
  );
}

function CurrentJob({ daemon: { current_job: job } }: { daemon: ProvisionerDaemon }) {
  if (!job) return <span className="text-muted">none</span>;
  return (
    <>
      {job.template_display_name || job.template_name} <Badge tone={jobTone[job.status] ?? "plain"}>{job.status}</Badge>
    </>
  );
}

function Queue() {
  const jobs = useQuery(queries.jobs());
  const [all, showAll] = useState(false);
  // One for all rows: the latest cancellation is the one whose progress and error are shown.
  const cancel = useMutation({
    mutationFn: (id: string) => send("PATCH", `organizations/default/provisionerjobs/${id}/cancel`),
  });
  const list = jobs.data ?? [];
  const open = list.filter((j) => !j.completed_at);
  const shown = all ? list : open;
  return (
    <Card
      flush
      title={`Queue${open.length ? ` (${open.length})` : ""}`}
      actions={
        <Button small look="quiet" aria-pressed={all} onClick={() => showAll(!all)}>
          {all ? "Hide ended jobs" : "Show ended jobs"}
        </Button>
      }
    >
      <Pending query={jobs} what="jobs" />
      {jobs.data && shown.length === 0 && <p className="px-4 py-6 text-center text-muted">No jobs.</p>}
      {shown.length > 0 && (
        <Table
          label="Queue"
          rows={shown}
          id={(j) => j.id}
          columns={[
            { name: "Job", cell: (j) => words(j.type.replace("template_version_", "template ")) },
            { name: "For", cell: (j) => <JobTarget job={j} /> },
            {
              name: "Status",
              cell: (j) => <JobStatus job={j} error={cancel.variables === j.id ? cancel.error : null} />,
              className: "max-w-64",
            },
            { name: "Tags", cell: (j) => <Tags of={j.tags} /> },
            { name: "Provisioner", cell: (j) => j.worker_name || "–" },
            { name: "Since", cell: (j) => <JobTime job={j} />, className: "tabular-nums" },
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
  return (
    <>
      {metadata.workspace_name ??
        (templateOf(job) && (
          <Link className="hover:underline" href={paths.template(metadata.template_name)}>
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
      {j.status === "pending" && (
        <span className="block text-[13px] text-warn">
          {j.waiting_reason || "starts as soon as a provisioner is free"}
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
  return j.completed_at ? <>took {duration(since(begun, j.completed_at))}</> : duration(now - Date.parse(begun));
}

function Keys() {
  const keys = useQuery(queries.provisionerKeys());
  const [adding, add] = useState(false);
  const [removing, remove] = useState<ProvisionerKey | null>(null);
  return (
    <Card
      flush
      title="Keys"
      actions={
        <Button small onClick={() => add(true)}>
          <Plus /> New key
        </Button>
      }
    >
      <Pending query={keys} what="keys" />
      {keys.data?.length === 0 && (
        <Empty icon={<KeyRound />} title="There are no keys">
          A key lets a provisioner on another machine join, with the tags that the key has.
        </Empty>
      )}
      {keys.data && keys.data.length > 0 && (
        <Table
          label="Keys"
          rows={keys.data}
          id={(k) => k.id}
          columns={[
            { name: "Name", cell: (k) => k.name, className: "font-medium" },
            { name: "Tags", cell: (k) => <Tags of={k.tags} /> },
            { name: "Created", cell: (k) => <Ago at={k.created_at} /> },
            {
              name: "Actions",
              action: true,
              cell: (k) => (
                <IconButton label={`Delete the key ${k.name}`} onClick={() => remove(k)}>
                  <X />
                </IconButton>
              ),
            },
          ]}
        />
      )}
      {adding && <NewKey onClose={() => add(false)} />}
      {removing && (
        <Confirm
          title={`Delete the key ${removing.name}?`}
          action="Delete"
          danger
          onConfirm={() => send("DELETE", `organizations/default/provisionerkeys/${segment(removing.name)}`)}
          onClose={() => remove(null)}
        >
          Provisioners that joined with it are disconnected and cannot come back.
        </Confirm>
      )}
    </Card>
  );
}

function NewKey({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [tags, setTags] = useState("");
  const create = useMutation({
    mutationFn: () =>
      send<CreateProvisionerKeyResponse>("POST", "organizations/default/provisionerkeys", {
        name,
        tags: parseTags(tags),
      } satisfies CreateProvisionerKeyRequest),
  });
  if (create.data)
    return (
      <DoneDialog title="New provisioner key" onClose={onClose}>
        <Note tone="warn" title="Copy this key now. It is shown only once.">
          Store it where the provisioner can read it.
        </Note>
        <CopyLine label="provisioner key" text={create.data.key} />
        <p className="text-muted">On the other machine:</p>
        <CopyLine
          label="start command"
          text={`CODER_URL=${location.origin} CODER_PROVISIONER_DAEMON_KEY=… coder provisioner start`}
        />
      </DoneDialog>
    );
  return (
    <FormDialog title="New provisioner key" request={create} submit="Create key" onClose={onClose}>
      <TextField label="Name" name="name" required autoFocus value={name} onChange={setName} />
      <TagsInput
        label="Tags"
        value={tags}
        onChange={setTags}
        hint="A provisioner with this key takes jobs whose tags are among these."
      />
    </FormDialog>
  );
}
