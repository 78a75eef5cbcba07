// The question before a workspace is updated: which versions lie between, what they say, what changes in the files and
// for the workspace's resources, and the parameters that the new version asks for.
import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useState } from "react";
import { lists, rowsPerPage } from "~/api/lists";
import { plan, PlanFailed } from "~/api/plans";
import { queries } from "~/api/queries";
import type {
  BuildParameter,
  ParameterValue,
  PlanAction,
  PlannedChange,
  PreviewParameter,
  ProvisionerJob,
  TemplateVersion,
  Workspace,
} from "~/api/types";
import { Diff } from "~/components/code/diff";
import { useFiles } from "~/components/code/files";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Confirm, FormDialog } from "~/components/ui/dialog";
import { ErrorNote } from "~/components/ui/error-note";
import { Icon } from "~/components/ui/icon";
import { Loading } from "~/components/ui/loading";
import { Note } from "~/components/ui/note";
import { mono, Table } from "~/components/ui/table";
import type { Tone } from "~/components/ui/tone";
import { changes } from "~/lib/diff";
import { type Fate, fates } from "~/lib/fates";
import { plural, sentence } from "~/lib/format";
import { messageOf } from "~/lib/toasts";
import { isLocked, validate } from "~/lib/validate";
import { ParameterForm, type ParametersForm, useBefore, useParameters, useSubmit } from "./parameters";

interface Props {
  workspace: Workspace;
  onConfirm: (parameters: ParameterValue[]) => Promise<unknown>;
  onClose: () => void;
}

export default function UpdateDialog({ workspace: w, onConfirm, onClose }: Props) {
  const once = { retry: false };
  const from = useQuery({ ...queries.version(w.latest_build.template_version_id), ...once });
  const to = useQuery({ ...queries.version(w.template_active_version_id), ...once });
  const current = useQuery({ ...queries.buildParameters(w.latest_build.id), ...once });
  const former = useQuery({ ...queries.parameters(w.latest_build.template_version_id), ...once });
  if (from.data && to.data && current.data && former.data)
    return (
      <Informed
        workspace={w}
        from={from.data}
        to={to.data}
        current={current.data}
        former={former.data.map((p) => p.name)}
        onConfirm={onConfirm}
        onClose={onClose}
      />
    );
  const error = from.error ?? to.error ?? current.error ?? former.error;
  if (!error) return null;
  // The template may be hidden from the user.
  return (
    <Confirm title={`Update ${w.name}?`} action="Update" onConfirm={() => onConfirm([])} onClose={onClose}>
      {whatEnds(w)} What the version changes cannot be shown: {messageOf(error)}
    </Confirm>
  );
}

const isStopped = (w: Workspace) => w.latest_build.status === "stopped";

const whatEnds = (w: Workspace) =>
  isStopped(w)
    ? "The update starts the workspace."
    : "The update stops the workspace and starts it again: running programs end.";

interface InformedProps extends Props {
  from: TemplateVersion;
  to: TemplateVersion;
  current: BuildParameter[];
  former: string[]; // the parameters of the version before
}

function Informed({ workspace: w, from, to, current, former, onConfirm, onClose }: InformedProps) {
  const { before, kept } = useBefore(current);
  const form = useParameters(to.id, w.owner_id, before, kept);
  const asked = useAsked(form, former);
  const update = useMutation({
    mutationFn: () => onConfirm(form.values().filter((v) => asked.has(v.name))),
    onSuccess: onClose,
  });
  const { submit, waiting } = useSubmit(form, update.mutate);
  // The server judges the parameters if the form cannot be had.
  const unknown = form.error && !form.parameters;
  return (
    <FormDialog
      wide
      title={`Update ${w.name}?`}
      request={{ ...update, mutate: unknown ? update.mutate : submit, isPending: update.isPending || waiting }}
      submit="Update"
      onClose={onClose}
    >
      <p className="text-muted">
        From version <span className="font-mono break-all text-ink">{from.name}</span> to{" "}
        <span className="font-mono break-all text-ink">{to.name}</span>. {whatEnds(w)}
      </p>
      <Versions from={from} to={to} />
      {(asked.size > 0 || form.diagnostics.length > 0 || Boolean(unknown)) && (
        <Section title="Parameters">
          {asked.size > 0 && (
            <p className="text-muted">The version asks for these: they are new, or it no longer allows their values.</p>
          )}
          <ParameterForm form={form} existing only={asked} />
        </Section>
      )}
      <Resources workspace={w} from={from} to={to} form={form} asked={asked} />
      <ChangedFiles from={from} to={to} />
    </FormDialog>
  );
}

const Section = ({ title, children }: { title: string; children: ReactNode }) => (
  <section className="flex min-w-0 flex-col gap-2">
    <h3 className="font-medium">{title}</h3>
    {children}
  </section>
);

// useAsked returns the parameters that the update asks for. One that was asked for stays, whatever its value is now.
function useAsked(form: ParametersForm, former: string[]): ReadonlySet<string> {
  const [asked, ask] = useState<ReadonlySet<string>>(new Set());
  const more = (form.parameters ?? []).filter((p) => !asked.has(p.name) && isNeeded(p, form, former));
  if (more.length > 0) ask(new Set([...asked, ...more.map((p) => p.name)]));
  return asked;
}

// isNeeded reports whether the workspace has no value for a parameter of the new version, or one that it does not
// allow. The template computes some values itself at each build.
function isNeeded(p: PreviewParameter, { before, kept, judged }: ParametersForm, former: string[]): boolean {
  const old = before[p.name];
  if (p.ephemeral || kept.has(p.name) || isLocked(p, old)) return false;
  if (old === undefined) return p.required || !former.includes(p.name);
  return validate(p, old) !== "" || (judged(p) && p.diagnostics.some((d) => d.severity === "error"));
}

const time = (v: TemplateVersion) => Date.parse(v.created_at);

function Versions({ from, to }: { from: TemplateVersion; to: TemplateVersion }) {
  const all = useQuery({ ...lists.versions(to.template_id ?? "", "", true, 0), enabled: Boolean(to.template_id) }).data;
  const back = time(to) < time(from);
  const between = (all ?? []).filter(
    (v) => v.job.status === "succeeded" && time(v) > time(from) && time(v) <= time(to),
  );
  const shown = between.length > 0 ? between : [to];
  const more = !back && all && all.length > rowsPerPage && all.every((v) => time(v) > time(from));
  return (
    <Section title={back ? "The active version is older than the workspace's" : "What the versions say"}>
      <ul aria-label="Versions" className="divide-y divide-line rounded-md border border-line">
        {shown.map((v) => (
          <li key={v.id} className="px-3 py-1.5">
            <span className="font-mono text-[13px] break-all">{v.name}</span>{" "}
            <span className="text-[13px] text-muted">
              by {v.created_by.username}, <Ago at={v.created_at} />
            </span>
            <span className="block break-words whitespace-pre-wrap">
              {v.message || <span className="text-muted">No message</span>}
            </span>
          </li>
        ))}
      </ul>
      {more && <p className="text-muted">Earlier ones are not shown.</p>}
    </Section>
  );
}

const tones: Record<Fate, Tone> = { created: "ok", deleted: "bad", replaced: "warn", kept: "plain" };
const words: Record<Fate, string> = { created: "created", deleted: "deleted", replaced: "made again", kept: "kept" };

interface ResourcesProps {
  workspace: Workspace;
  from: TemplateVersion;
  to: TemplateVersion;
  form: ParametersForm;
  asked: ReadonlySet<string>; // the parameters of which the update sends the values
}

// usePlan plans the update with the values that it would send, once they are complete.
function usePlan({ workspace: w, to, form, asked }: ResourcesProps) {
  const values = isComplete(form) ? form.values().filter((v) => asked.has(v.name)) : undefined;
  const [planned, setPlanned] = useState<ParameterValue[]>();
  const [job, setJob] = useState<ProvisionerJob>();
  if (!planned && values) setPlanned(values);
  const made = useQuery({ ...plan(w, to.id, planned ?? [], setJob), enabled: planned !== undefined });
  const other = planned && values && JSON.stringify(values) !== JSON.stringify(planned);
  return { made, job, again: other ? () => setPlanned(values) : undefined, pending: planned !== undefined };
}

const isComplete = (form: ParametersForm) =>
  form.parameters !== undefined &&
  !form.pending &&
  !form.diagnostics.some((d) => d.severity === "error") &&
  form.parameters.every(
    (p) => p.ephemeral || form.kept.has(p.name) || validate(p, form.value(p), form.before[p.name]) === "",
  );

// groups are the actions of a plan in the order in which they are listed, with what the update does.
const groups: [PlanAction, string, Tone][] = [
  ["replace", "Destroyed and created anew", "warn"],
  ["delete", "Deleted", "bad"],
  ["update", "Changed in place", "plain"],
  ["create", "Created", "ok"],
  ["forget", "No longer managed; they continue to exist", "plain"],
];

const reasons: Partial<Record<PlanAction, string>> = { replace: "because of", update: "changes" };

function Lost({ changes }: { changes: PlannedChange[] }) {
  const lost = changes.filter((c) => c.loses_data);
  if (lost.length === 0) return null;
  const of = (action: PlanAction) => lost.filter((c) => c.action === action).map((c) => c.address);
  const parts = [
    [of("replace"), "destroyed and created anew"],
    [of("delete"), "deleted"],
  ] as const;
  return (
    <Note tone="warn" title="Data would be lost">
      {parts
        .filter(([names]) => names.length > 0)
        .map(
          ([names, fate]) =>
            `${plural(names.length, "resource")} will be ${fate}: ${names.join(", ")} — ` +
            `${names.length === 1 ? "its" : "their"} data is lost.`,
        )
        .join("\n")}
    </Note>
  );
}

function Planned({ changes }: { changes: PlannedChange[] }) {
  const same = changes.filter((c) => c.action === "no-op").length;
  const shown = groups
    .map(([action, title, tone]) => ({ action, title, tone, of: changes.filter((c) => c.action === action) }))
    .filter(({ of }) => of.length > 0);
  return (
    <>
      <Lost changes={changes} />
      {shown.map(({ action, title, tone, of }) => (
        <div key={action} className="flex min-w-0 flex-col gap-1">
          <h4 className="flex items-center gap-2">
            <Badge tone={tone}>{action}</Badge> {title}
          </h4>
          <ul aria-label={title} className="divide-y divide-line rounded-md border border-line">
            {of.map((c) => (
              <li key={c.address} className="px-3 py-1.5">
                <span className="font-mono text-[13px] break-all">{c.address}</span>
                {c.attributes.length > 0 && reasons[action] && (
                  <span className="text-[13px] break-words text-muted">
                    {" "}
                    {reasons[action]} {c.attributes.join(", ")}
                  </span>
                )}
              </li>
            ))}
          </ul>
        </div>
      ))}
      {shown.length === 0 && <p className="text-muted">The update changes no resource.</p>}
      {same > 0 && <p className="text-muted">{plural(same, "resource")} unchanged.</p>}
    </>
  );
}

// Failed says why there is no plan, with the end of its log.
function Failed({ error, onAgain }: { error: Error; onAgain: () => void }) {
  const log = error instanceof PlanFailed ? error.log : [];
  return (
    <>
      <Note tone="warn" title="The update cannot be planned">
        {messageOf(error)}
      </Note>
      {log.length > 0 && (
        <details>
          <summary className="cursor-pointer text-muted">End of the plan&rsquo;s log</summary>
          <pre
            tabIndex={0}
            className="max-h-60 overflow-auto border border-line p-2 font-mono text-[13px] whitespace-pre-wrap"
          >
            {log.join("\n")}
          </pre>
        </details>
      )}
      <div>
        <Button small onClick={onAgain}>
          Plan again
        </Button>
      </div>
    </>
  );
}

function Resources(props: ResourcesProps) {
  const { to } = props;
  const { made, job, again, pending } = usePlan(props);
  const planning = pending && made.isFetching;
  return (
    <Section title="What changes">
      {planning ? (
        <Loading what="the plan" />
      ) : made.data ? (
        <>
          <Planned changes={made.data} />
          <p className="text-[13px] text-muted">
            From a plan with the workspace&rsquo;s state and parameters; nothing was changed.{" "}
            {!isStopped(props.workspace) &&
              "The update stops the workspace first: what it has only while it runs is made again in any case. "}
            Before the build replaces or deletes what outlives a stop, it asks.
          </p>
        </>
      ) : (
        <>
          {made.error && <Failed error={made.error} onAgain={() => void made.refetch()} />}
          {!made.error && <p className="text-muted">Enter the parameters to see what the update changes.</p>}
          <Expected {...props} />
        </>
      )}
      {planning && job?.waiting_reason && <p className="text-muted">{sentence(job.waiting_reason)}</p>}
      {again && (
        <div>
          <Button small onClick={again}>
            Plan with the new values
          </Button>
        </div>
      )}
      {made.error && <p className="text-[13px] text-muted">You can update to {to.name} without a plan.</p>}
    </Section>
  );
}

// Expected lists what the import of the version found, while there is no plan.
function Expected({ workspace: w, from, to }: ResourcesProps) {
  const former = useQuery({ ...queries.versionResources(from.id), retry: false });
  const usual = useQuery({ ...queries.versionResources(to.id), retry: false });
  const makes = usual.data?.filter((r) => r.workspace_transition === "start");
  const lasting = former.data?.filter((r) => r.workspace_transition === "stop");
  const rows = makes && lasting && fates(w.latest_build.resources, makes, isStopped(w) ? undefined : lasting);
  const error = former.error ?? usual.error;
  if (error) return <ErrorNote error={error} title="Cannot show the resources" />;
  if (!rows) return <Loading what="resources" />;
  return (
    <>
      <Table
        label="Resources after the update"
        rows={rows}
        id={(r) => `${r.type}.${r.name} ${r.fate}`}
        columns={[
          {
            name: "Resource",
            cell: (r) => (
              <span className="flex items-center gap-2">
                <Icon src={r.icon} name={r.type} /> {r.name}
                {r.count > 1 && <span className="text-muted">× {r.count}</span>}
              </span>
            ),
          },
          { name: "Type", cell: (r) => r.type, className: mono },
          { name: "The update", cell: (r) => <Badge tone={tones[r.fate]}>{words[r.fate]}</Badge> },
        ]}
      />
      <p className="text-[13px] text-muted">
        As the import of {to.name} found them with the parameters&rsquo; defaults, compared by name.
      </p>
    </>
  );
}

function ChangedFiles({ from, to }: { from: TemplateVersion; to: TemplateVersion }) {
  const before = useFiles(from.job.file_id);
  const after = useFiles(to.job.file_id);
  const [open, setOpen] = useState(false);
  const found = useMemo(
    () => before.data && after.data && changes(before.data.files, after.data.files),
    [before.data, after.data],
  );
  const error = before.error ?? after.error;
  return (
    <Section title="Files">
      {error ? (
        <p className="text-muted">The files cannot be shown: {messageOf(error)}</p>
      ) : !found ? (
        <Loading what="files" />
      ) : found.length === 0 ? (
        <p className="text-muted">The files are the same.</p>
      ) : (
        <>
          <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
            <Button small aria-expanded={open} onClick={() => setOpen(!open)}>
              {open ? "Hide" : "Show"} the changes of {plural(found.length, "file")}
            </Button>
            <span className="min-w-0 font-mono text-[13px] break-all">{found.map((c) => c.path).join(", ")}</span>
          </div>
          {open && <Diff before={before.data!.files} after={after.data!.files} than={from.name} />}
        </>
      )}
    </Section>
  );
}
