import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { ArrowRightLeft, Trash2 } from "lucide-react";
import { Fragment, lazy, type ReactNode, Suspense, useState } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { lists, pageOf, rowsPerPage } from "~/api/lists";
import { useBuildLog } from "~/api/logs";
import { ask, gone, queries, whileQueued } from "~/api/queries";
import type { BuildParameter, ProvisionerJob, Workspace, WorkspaceBuild } from "~/api/types";
import { AgentCard } from "~/components/agent/card";
import { JobLogView, linkedLine } from "~/components/log/job";
import { Withheld } from "~/components/template/consents";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { Facts } from "~/components/ui/facts";
import { Icon } from "~/components/ui/icon";
import { Left } from "~/components/ui/left";
import { LinkButton } from "~/components/ui/link-button";
import { Loading } from "~/components/ui/loading";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { Pager } from "~/components/ui/pager";
import { PendingPage } from "~/components/ui/pending";
import {
  agentsIn,
  agentsOf,
  isBusy,
  isReady,
  JobBadge,
  reasonOf,
  waitingOf,
  WorkspaceBadge,
} from "~/components/ui/status";
import { mono, Table } from "~/components/ui/table";
import { TabsNav } from "~/components/ui/tabs-nav";
import { Guest, WorkspaceSharing } from "~/components/workspace/access";
import { ActionDialogs, ActionMenu, PrimaryAction, useWorkspaceActions } from "~/components/workspace/actions";
import { Activity } from "~/components/workspace/activity";
import { Announced, Consequences, Dormancy } from "~/components/workspace/consequences";
import { Quota } from "~/components/workspace/quota";
import { WorkspaceSettings } from "~/components/workspace/settings";
import { Stopping } from "~/components/workspace/stopping";
import { Timeline } from "~/components/workspace/timeline";
import { UpdateNote } from "~/components/workspace/update-note";
import { duration, plural, sentence, since, words } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";
import { useTemplateRef } from "~/lib/template-ref";

const Replacing = lazy(() => import("~/components/workspace/replacing"));
const WorkspaceFiles = lazy(() => import("~/components/workspace/files"));

// byID finds a workspace that was renamed, transferred or deleted.
const byID = (workspace: string) =>
  ask(["workspaces", "by-id", workspace], "workspaces/{workspace}", { workspace, query: { include_deleted: true } });

export default function WorkspacePage({
  owner,
  name,
  build,
}: {
  owner: string;
  name: string;
  build: number | undefined;
}) {
  useTitle(name);
  const workspace = useQuery({
    ...queries.workspace(owner, name),
    refetchInterval: ({ state }) => whileQueued(state.data && [state.data]),
  });
  // Those who may still see it learn what became of it.
  const left = gone(workspace.error) ? workspace.data : undefined;
  const now = useQuery({ ...byID(left?.id ?? ""), enabled: left !== undefined });
  if (gone(workspace.error)) {
    if (left && now.isPending) return <PendingPage query={now} what="workspace" title={name} />;
    if (now.data && now.data.latest_build.status !== "deleted" && left) return <Moved from={left} to={now.data} />;
    const { title, text } = lost(owner, name, left, now.data);
    return (
      <Empty
        page
        icon={<Trash2 />}
        title={title}
        action={
          <LinkButton look="primary" href={paths.workspaces}>
            Go to your workspaces
          </LinkButton>
        }
      >
        {text}
      </Empty>
    );
  }
  if (!workspace.data) return <PendingPage query={workspace} what="workspace" title={name} />;
  return <Shown workspace={workspace.data} build={build} />;
}

// lost explains why a workspace cannot be shown. shown: the workspace as this page has shown it. now: what became of
// it, if the user may still see that.
function lost(owner: string, name: string, shown: Workspace | undefined, now: Workspace | undefined) {
  if (!shown)
    return {
      title: "Workspace not found",
      text: `${owner} has no workspace called ${name}, or you do not have access to it.`,
    };
  return now
    ? { title: `${name} was deleted`, text: "It was deleted while this page was open." }
    : {
        title: `${name} is no longer available`,
        text: "It was deleted or transferred to another user, or your access to it has ended.",
      };
}

// Moved leads to a workspace that has another owner or name now.
function Moved({ from, to }: { from: Workspace; to: Workspace }) {
  const transferred = from.owner_id !== to.owner_id;
  return (
    <Empty
      page
      icon={<ArrowRightLeft />}
      title={transferred ? `${from.name} now belongs to ${to.owner_name}` : `${from.name} is now called ${to.name}`}
      action={
        <LinkButton look="primary" href={paths.workspace(to.owner_name, to.name)}>
          Open {to.name}
        </LinkButton>
      }
    >
      {transferred ? "It was transferred while this page was open." : "It was renamed while this page was open."}
    </Empty>
  );
}

function Shown({ workspace: w, build }: { workspace: Workspace; build: number | undefined }) {
  const actions = useWorkspaceActions();
  const action = { workspace: w, act: actions.act, busy: actions.busy.has(w.id) };
  const search = useSearch();
  const asked = build !== undefined ? "builds" : (new URLSearchParams(search).get("tab") ?? "overview");
  const may: Record<string, boolean> = {
    files: w.permissions.connect,
    settings: w.permissions.update,
    sharing: w.permissions.withdraw,
  };
  const tab = may[asked] === false ? "overview" : asked;
  const at = paths.workspace(w.owner_name, w.name);
  const ref = useTemplateRef();
  const reason = reasonOf(w.latest_build);
  return (
    <Page
      title={
        <span className="flex flex-wrap items-center gap-2.5">
          <Icon src={w.template_icon} name={w.template_name} className="size-7" />
          {w.name}
          <WorkspaceBadge workspace={w} />
        </span>
      }
      subtitle={
        <>
          {w.owner_name} ·{" "}
          <Link
            className="hover:underline"
            href={paths.template(ref({ id: w.template_id, name: w.template_name, organization_id: w.organization_id }))}
          >
            {w.template_display_name || w.template_name}
          </Link>{" "}
          · last used <Ago at={w.last_used_at} />
          {w.latest_build.daily_cost > 0 && (
            <>
              {" "}
              · costs {plural(w.latest_build.daily_cost, "credit")} a day
              {w.permissions.delete && <Quota organization={w.organization_id} user={w.owner_id} name={w.owner_name} />}
            </>
          )}
        </>
      }
      actions={
        <>
          <PrimaryAction {...action} />
          <ActionMenu {...action} />
          <ActionDialogs actions={actions} />
        </>
      }
    >
      {w.latest_build.job.error_code === "REPLACES_RESOURCES" ? (
        <Suspense>
          <Replacing key={w.latest_build.id} workspace={w} />
        </Suspense>
      ) : w.latest_build.job.error ? (
        <Note title={`${words(w.latest_build.transition)} failed`}>{w.latest_build.job.error}</Note>
      ) : (
        reason &&
        (w.latest_build.status === "pending" || w.latest_build.job.waiting_reason) && (
          <Waiting job={w.latest_build.job} reason={reason} />
        )
      )}
      <Guest workspace={w} />
      <Dormancy workspace={w} />
      <Withheld workspace={w} />
      <Announced workspace={w} />
      <Stopping workspace={w} />
      <UpdateNote {...action} />
      <TabsNav
        label="Workspace"
        current={tab}
        tabs={[
          { key: "overview", name: "Overview", to: at },
          { key: "builds", name: "Builds", to: paths.build(w.owner_name, w.name, w.latest_build.build_number) },
          ...(w.permissions.connect ? [{ key: "files", name: "Files", to: paths.files(w.owner_name, w.name) }] : []),
          ...(w.permissions.update ? [{ key: "settings", name: "Settings", to: `${at}?tab=settings` }] : []),
          ...(w.permissions.withdraw ? [{ key: "sharing", name: "Sharing", to: `${at}?tab=sharing` }] : []),
        ]}
      />
      {tab === "files" ? (
        <Suspense fallback={<Loading what="files" />}>
          <WorkspaceFiles workspace={w} />
        </Suspense>
      ) : tab === "settings" ? (
        <WorkspaceSettings key={w.id} workspace={w} />
      ) : tab === "sharing" ? (
        <WorkspaceSharing workspace={w} />
      ) : tab === "builds" ? (
        <Builds workspace={w} number={build ?? w.latest_build.build_number} />
      ) : (
        <Overview workspace={w} />
      )}
    </Page>
  );
}

// Waiting says why a job does not run or go on, and what to do.
function Waiting({ job, reason }: { job: ProvisionerJob; reason: string }) {
  return (
    <Note tone="warn" title={sentence(reason)}>
      {job.interrupted_at && (
        <>
          <Left until={job.interrupted_at} />.{" "}
        </>
      )}
      {job.waiting_remedy}
    </Note>
  );
}

function Overview({ workspace: w }: { workspace: Workspace }) {
  const { latest_build: build } = w;
  const agents = agentsOf(build);
  const building = isBusy(build.status) || build.status === "failed" || build.status === "canceled";
  // The log of a build that this page has followed stays open until the agents are ready.
  const [watched, setWatched] = useState(building ? build.id : "");
  if (building && watched !== build.id) setWatched(build.id);
  const open = building || (watched === build.id && !agents.every(isReady));
  return (
    <div className="grid gap-4 lg:grid-cols-[minmax(0,1fr)_18rem] xl:grid-cols-[minmax(0,1fr)_24rem]">
      <div className="flex min-w-0 flex-col gap-4">
        <FoldedBuild key={build.id} build={build} open={open} />
        {agents.map((agent) => (
          <Fragment key={agent.id}>
            <AgentCard workspace={w} agent={agent} />
            {agentsIn(build, agent).map((inside) => (
              <div key={inside.id} className="border-l-2 border-line pl-4">
                <AgentCard workspace={w} agent={inside} />
              </div>
            ))}
          </Fragment>
        ))}
        {build.status === "stopped" && agents.length === 0 && (
          <Card>
            <Empty title={w.dormant_at ? "The workspace is dormant" : "The workspace is stopped"}>
              {w.dormant_at ? "Wake it, and start it to connect." : "Start it to connect."} Your files are kept.
            </Empty>
          </Card>
        )}
      </div>
      <div className="flex min-w-0 flex-col gap-4">
        <Activity workspace={w} />
        <Consequences workspace={w} />
        <Resources build={build} />
      </div>
    </div>
  );
}

function Resources({ build }: { build: WorkspaceBuild }) {
  const shown = build.resources.filter((r) => !r.hide);
  if (shown.length === 0) return null;
  return (
    <Card title="Resources" flush>
      <ul className="divide-y divide-line">
        {shown.map((r) => (
          <li key={r.id} className="flex flex-wrap items-start gap-x-6 gap-y-2 px-4 py-2.5">
            <span className="flex min-w-48 items-center gap-2">
              <Icon src={r.icon} name={r.type} />{" "}
              <span>
                {r.name} <span className="block font-mono text-xs text-muted">{r.type}</span>
              </span>
            </span>
            {(r.metadata ?? []).map((m) => (
              <span key={m.key} className="min-w-0">
                <span className="block text-xs text-muted">{m.key}</span>
                {m.sensitive ? <Secret value={m.value} /> : <span className="break-all">{m.value}</span>}
              </span>
            ))}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Secret({ value }: { value: string }) {
  const [open, setOpen] = useState(false);
  return (
    <button
      type="button"
      className="font-mono underline decoration-dotted"
      aria-label={open ? undefined : "Show secret value"}
      onClick={() => setOpen(!open)}
    >
      {open ? value : "••••••"}
    </button>
  );
}

function Value({ of: p }: { of: BuildParameter }) {
  if (!p.masked) return p.value || "–";
  return p.value ? (
    <Secret value={p.value} />
  ) : (
    <span className="text-muted" title="Only the owner can see this value">
      ••••••
    </span>
  );
}

export function Builds({ workspace: w, number }: { workspace: Workspace; number: number }) {
  const latest = number === w.latest_build.build_number;
  const other = useQuery({ ...queries.build(w.owner_name, w.name, number), enabled: !latest });
  // The page that has the build.
  const [page, setPage] = useState(() => Math.max(0, Math.floor((w.latest_build.build_number - number) / rowsPerPage)));
  const builds = useQuery({ ...lists.builds(w.id, page), placeholderData: keepPreviousData });
  const { rows, count } = pageOf(builds.data, page);
  const [, navigate] = useLocation();
  const build = latest ? w.latest_build : other.data;
  return (
    <>
      <ErrorNote error={other.error ?? builds.error} />
      {build && <BuildDetail key={build.id} build={build} old={!latest} />}
      <Card title="Builds" flush>
        <Table
          label="Builds"
          rows={rows}
          id={(b) => b.id}
          row={(b) => ({
            className: "cursor-pointer hover:bg-raised aria-[current=true]:bg-accent-soft",
            ...(b.build_number === number ? { "aria-current": true } : {}),
            onClick: () => navigate(paths.build(w.owner_name, w.name, b.build_number)),
          })}
          columns={[
            {
              name: "Build",
              cell: (b) => (
                <Link className="font-medium hover:underline" href={paths.build(w.owner_name, w.name, b.build_number)}>
                  #{b.build_number} {b.transition}
                </Link>
              ),
            },
            { name: "Status", cell: (b) => <JobBadge status={b.job.status} /> },
            {
              name: "By",
              cell: (b) => (
                <>
                  {b.initiator_name}{" "}
                  {!["initiator", "dashboard"].includes(b.reason) && <Badge>{b.reason.replaceAll("_", " ")}</Badge>}
                </>
              ),
            },
            { name: "Version", cell: (b) => b.template_version_name, className: mono },
            { name: "When", cell: (b) => <Ago at={b.created_at} /> },
            {
              name: "Took",
              cell: (b) => (b.job.started_at ? duration(since(b.job.started_at, b.job.completed_at)) : "–"),
              className: "tabular-nums",
            },
          ]}
        />
      </Card>
      <Pager
        page={page}
        size={rowsPerPage}
        rows={rows.length}
        count={count}
        back="Newer"
        forth="Older"
        onPage={setPage}
      />
    </>
  );
}

// FoldedBuild is one line for a build that went well, with a button for the rest. open: show all of it until the user
// decides.
function FoldedBuild({ build, open }: { build: WorkspaceBuild; open: boolean }) {
  const [chosen, choose] = useState<boolean | undefined>(linkedLine() > 0 || undefined);
  const shown = chosen ?? open;
  const { job } = build;
  const toggle = (
    <Button small look="quiet" aria-expanded={shown} onClick={() => choose(!shown)}>
      {shown ? "Hide log" : "Show log"}
    </Button>
  );
  if (shown) return <BuildDetail build={build} actions={toggle} />;
  return (
    <Card flush>
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1 px-4 py-1.5">
        <h2 className="font-semibold">{buildTitle(build)}</h2>
        <JobBadge status={job.status} />
        <span className="text-[13px] text-muted">
          {job.started_at && job.completed_at && `took ${duration(since(job.started_at, job.completed_at))}, `}
          <Ago at={job.completed_at ?? job.created_at} />
        </span>
        <span className="ml-auto">{toggle}</span>
      </div>
    </Card>
  );
}

const buildTitle = (build: WorkspaceBuild) => `Build #${build.build_number}: ${build.transition}`;

// BuildDetail shows a build. old: it is not the workspace's latest, of which the page itself says why it waits.
function BuildDetail({ build, old, actions }: { build: WorkspaceBuild; old?: boolean; actions?: ReactNode }) {
  const log = useBuildLog(build.id, Boolean(build.job.completed_at));
  const parameters = useQuery(queries.buildParameters(build.id));
  const { job } = build;
  return (
    <div className="@container grid gap-4">
      {old && job.waiting_reason && <Waiting job={job} reason={waitingOf(job)} />}
      <Card
        flush
        title={buildTitle(build)}
        actions={
          <span className="flex items-center gap-2">
            <JobBadge status={build.job.status} />
            {actions}
          </span>
        }
      >
        <JobLogView log={log} job={build.job} />
      </Card>
      <div className="grid gap-4 @3xl:grid-cols-[2fr_1fr]">
        <Card title="Timeline">
          <Timeline build={build} lines={log.lines} />
        </Card>
        <Card title="Details">
          <Facts
            of={[
              ["Version", <code key="v">{build.template_version_name}</code>],
              ["By", build.initiator_name],
              ["Provisioner", build.job.worker_name || "None yet"],
              ...(parameters.data ?? []).map((p): [string, ReactNode] => [p.name, <Value key={p.name} of={p} />]),
            ]}
          />
        </Card>
      </div>
    </div>
  );
}
