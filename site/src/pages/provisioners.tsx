import { useMutation, useQuery } from "@tanstack/react-query";
import { Cpu, KeyRound, Plus, X } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { MeshPeer, ProvisionerDaemon, ProvisionerJob, ProvisionerKey } from "~/api/types";
import { CopyLine } from "~/components/copy";
import { Confirm, Dialog } from "~/components/dialog";
import { Dot, jobTone } from "~/components/status";
import { parseTags, TagsInput } from "~/components/tags-input";
import {
  Ago,
  Badge,
  Button,
  Card,
  Empty,
  ErrorNote,
  fieldError,
  IconButton,
  Loading,
  Note,
  Page,
  Table,
  Tags,
  td,
  TextField,
} from "~/components/ui";
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
      <ErrorNote error={daemons.error} />
      {daemons.isPending && !daemons.error && <Loading what="daemons" />}
      {daemons.data && shown.length === 0 && <NoDaemons all={all} />}
      {shown.length > 0 && (
        <Table label="Daemons" head={["Name", "Status", "Tags", "Path", "Job", "Version", "Last seen"]}>
          {shown.map((d) => (
            <DaemonRow key={d.id} daemon={d} peer={mesh.data?.peers.find((p) => p.id === d.id)} />
          ))}
        </Table>
      )}
    </Card>
  );
}

// NoDaemons tells template admins that builds must wait. Others see only their own provisioners and learn nothing of the shared ones.
function NoDaemons({ all }: { all: boolean }) {
  if (!mayEditTemplates(useMe())) {
    return (
      <Empty icon={<Cpu />} title="You have no provisioners of your own">
        Shared provisioners run your builds; only template admins see them. A build that must wait for one says so.
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

function DaemonRow({ daemon: d, peer }: { daemon: ProvisionerDaemon; peer: MeshPeer | undefined }) {
  return (
    <tr>
      <td className={td}>
        <span className="font-medium">{d.name}</span>
        {d.key_name && d.key_name !== "built-in" && (
          <span className="block text-[13px] text-muted">key {d.key_name}</span>
        )}
      </td>
      <td className={td}>
        <Badge tone={daemonTone[d.status]}>
          <Dot tone={daemonTone[d.status]} /> {d.status}
        </Badge>
      </td>
      <td className={td}>
        <Tags of={d.tags} />
      </td>
      <td className={td}>
        {peer && peer.connected ? (
          <>
            {peer.path} {peer.latency_ms > 0 && <span className="text-muted">{duration(peer.latency_ms)}</span>}
          </>
        ) : (
          "–"
        )}
      </td>
      <td className={td}>
        {d.current_job ? (
          <>
            {d.current_job.template_display_name || d.current_job.template_name}{" "}
            <Badge tone={jobTone[d.current_job.status] ?? "plain"}>{d.current_job.status}</Badge>
          </>
        ) : (
          <span className="text-muted">none</span>
        )}
      </td>
      <td className={`${td} font-mono text-[13px]`}>{d.version}</td>
      <td className={td}>
        <Ago at={d.last_seen_at} />
      </td>
    </tr>
  );
}

function Queue() {
  const jobs = useQuery(queries.jobs());
  const [all, showAll] = useState(false);
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
      <ErrorNote error={jobs.error} />
      {jobs.data && shown.length === 0 && <p className="px-4 py-6 text-center text-muted">No jobs.</p>}
      {shown.length > 0 && (
        <Table label="Queue" head={["Job", "For", "Status", "Tags", "Provisioner", "Since", ""]}>
          {shown.map((j) => (
            <JobRow key={j.id} job={j} />
          ))}
        </Table>
      )}
    </Card>
  );
}

function JobRow({ job: j }: { job: ProvisionerJob }) {
  const cancel = useMutation({
    mutationFn: () => send("PATCH", `organizations/default/provisionerjobs/${j.id}/cancel`),
  });
  const now = useNow(1000, !j.completed_at);
  const what = j.metadata.template_display_name || j.metadata.template_name;
  return (
    <tr>
      <td className={td}>{words(j.type.replace("template_version_", "template "))}</td>
      <td className={td}>
        {j.metadata.workspace_name ??
          (what && (
            <Link className="hover:underline" href={paths.template(j.metadata.template_name)}>
              {what}
            </Link>
          ))}
        <span className="block font-mono text-xs text-muted">{j.metadata.template_version_name}</span>
      </td>
      <td className={`${td} max-w-64`}>
        <Badge tone={jobTone[j.status] ?? "plain"}>
          {j.status}
          {j.status === "pending" && j.queue_position > 0 && ` ${j.queue_position} of ${j.queue_size}`}
        </Badge>
        {j.status === "pending" && (
          <span className="block text-[13px] text-warn">
            {j.waiting_reason || "a provisioner takes it as soon as one is free"}
          </span>
        )}
        {j.error && (
          <span className="block truncate text-[13px] text-bad" title={j.error}>
            {j.error}
          </span>
        )}
        {cancel.error && <span className="block text-[13px] text-bad">{cancel.error.message}</span>}
      </td>
      <td className={td}>
        <Tags of={j.tags} />
      </td>
      <td className={td}>{j.worker_name || "–"}</td>
      <td className={`${td} tabular-nums`}>
        {j.completed_at ? (
          <>took {duration(since(j.started_at ?? j.created_at, j.completed_at))}</>
        ) : (
          duration(now - Date.parse(j.started_at ?? j.created_at))
        )}
      </td>
      <td className={`${td} text-right`}>
        {!j.completed_at && (
          <Button
            small
            busy={cancel.isPending}
            onClick={() => cancel.mutate()}
            aria-label={`Cancel the job for ${j.metadata.workspace_name ?? what}`}
          >
            <X /> Cancel
          </Button>
        )}
      </td>
    </tr>
  );
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
      <ErrorNote error={keys.error} />
      {keys.data?.length === 0 && (
        <Empty icon={<KeyRound />} title="There are no keys">
          A key lets a provisioner on another machine join, with the tags that the key has.
        </Empty>
      )}
      {(keys.data?.length ?? 0) > 0 && (
        <Table label="Keys" head={["Name", "Tags", "Created", ""]}>
          {keys.data!.map((k) => (
            <tr key={k.id}>
              <td className={`${td} font-medium`}>{k.name}</td>
              <td className={td}>
                <Tags of={k.tags} />
              </td>
              <td className={td}>
                <Ago at={k.created_at} />
              </td>
              <td className={`${td} text-right`}>
                <IconButton label={`Delete the key ${k.name}`} onClick={() => remove(k)}>
                  <X />
                </IconButton>
              </td>
            </tr>
          ))}
        </Table>
      )}
      {adding && <NewKey onClose={() => add(false)} />}
      {removing && (
        <Confirm
          title={`Delete the key ${removing.name}?`}
          action="Delete"
          danger
          onConfirm={() =>
            send("DELETE", `organizations/default/provisionerkeys/${encodeURIComponent(removing.name)}`).then(() =>
              keys.refetch(),
            )
          }
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
      send<{ key: string }>("POST", "organizations/default/provisionerkeys", { name, tags: parseTags(tags) }),
  });
  return (
    <Dialog title="New provisioner key" onClose={onClose}>
      {create.data ? (
        <>
          <Note tone="warn" title="This key is shown once">
            Keep it where the provisioner reads it.
          </Note>
          <CopyLine label="provisioner key" text={create.data.key} />
          <p className="text-muted">On the other machine:</p>
          <CopyLine
            label="start command"
            text={`CODER_URL=${location.origin} CODER_PROVISIONER_DAEMON_KEY=… coder provisioner start`}
          />
          <div className="flex justify-end">
            <Button look="primary" onClick={onClose}>
              Done
            </Button>
          </div>
        </>
      ) : (
        <form
          className="flex flex-col gap-4"
          onSubmit={(e) => {
            e.preventDefault();
            create.mutate();
          }}
        >
          <TextField
            label="Name"
            required
            autoFocus
            value={name}
            onChange={setName}
            error={fieldError(create.error, "name")}
          />
          <TagsInput
            label="Tags"
            value={tags}
            onChange={setTags}
            hint="A provisioner with this key takes jobs whose tags are among these."
          />
          <ErrorNote error={create.error} />
          <div className="flex justify-end gap-2">
            <Button onClick={onClose}>Cancel</Button>
            <Button type="submit" look="primary" busy={create.isPending}>
              Create
            </Button>
          </div>
        </form>
      )}
    </Dialog>
  );
}
