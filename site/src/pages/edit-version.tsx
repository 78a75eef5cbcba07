// The files of a template version, edited in the browser: the result is imported as a new version.
import { useMutation, useQuery } from "@tanstack/react-query";
import { FilePlus, FileText, Pencil, Trash2 } from "lucide-react";
import { type ComponentProps, lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { get, send } from "~/api/client";
import { useVersionLog } from "~/api/logs";
import { queries } from "~/api/queries";
import { activateVersion, createVersion, reimport } from "~/api/templates";
import type { ProvisionerJob, Template, TemplateVersion, VariableValue } from "~/api/types";
import { Diff } from "~/components/code/diff";
import { useFiles } from "~/components/code/files";
import { failuresOf, ImportLog } from "~/components/template/import-result";
import { VariablesForm } from "~/components/template/variables-form";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { cx } from "~/components/ui/cx";
import { FormDialog } from "~/components/ui/dialog";
import { Form, TextField } from "~/components/ui/form";
import { IconButton } from "~/components/ui/icon-button";
import { LinkButton } from "~/components/ui/link-button";
import { Loading } from "~/components/ui/loading";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { PendingPage } from "~/components/ui/pending";
import type { Position } from "~/lib/diagnostic";
import { textOf } from "~/lib/diff";
import type { Kept } from "~/lib/editor";
import { bytes } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { paths } from "~/lib/path";
import { type File, writeTar } from "~/lib/tar";
import { useTemplateRef } from "~/lib/template-ref";
import { nextName } from "~/lib/version-name";

export default function EditVersion({ template: name, version: versionName }: { template: string; version: string }) {
  useTitle(`Edit ${name}`);
  const template = useQuery(queries.template(name));
  const version = useQuery({
    ...queries.versionByName(template.data?.id ?? "", versionName),
    enabled: template.data !== undefined,
  });
  const active = useQuery({
    ...queries.version(template.data?.active_version_id ?? ""),
    enabled: template.data !== undefined,
  });
  const files = useFiles(version.data?.job.file_id);
  const base = useFiles(active.data?.job.file_id);
  const title = `Edit ${template.data?.display_name || name}`;
  const waiting = [template, version, active, files, base].find((q) => q.data === undefined);
  if (!template.data || !version.data || !active.data || !files.data || !base.data)
    return <PendingPage query={waiting!} what="files" title={title} />;
  return (
    <Page title={title} subtitle={<>From version {version.data.name}</>}>
      {files.data.links.length > 0 ? (
        <Note tone="warn" title="This version cannot be edited here">
          It contains links, which would be lost: {files.data.links.join(", ")}. Use coder templates pull and push.
        </Note>
      ) : (
        <Editor
          key={version.data.id}
          {...{ template: template.data, address: name, version: version.data, active: active.data }}
          files={files.data.files}
          base={base.data.files}
        />
      )}
    </Page>
  );
}

// Edits that have not been imported, by version: they outlast a visit to another page.
const drafts = new Map<string, File[]>();

interface EditorProps {
  template: Template;
  address: string; // in addresses
  version: TemplateVersion;
  active: TemplateVersion;
  files: File[];
  base: File[]; // of the active version
}

function Editor({ template, address, version, active, files: original, base }: EditorProps) {
  const [, navigate] = useLocation();
  const refOf = useTemplateRef();
  const [files, setFiles] = useState(() => drafts.get(version.id) ?? original);
  const [attempt, setAttempt] = useState<Attempt>();
  const { job, log, problems } = useAttempt(attempt, version, files);
  const state = attempt && job && (job.completed_at ? job.status : "running");
  const [chosen, choose] = useState<string>();
  const [comparing, compare] = useState(false);
  const [naming, ask] = useState<"add" | "rename">();
  const [name, setName] = useState("");
  const [message, setMessage] = useState("");
  const [target, lead] = useState<Position>();
  const kept = useRef<Kept>(new Map());
  const saved = state === "succeeded" ? attempt!.files : original;
  const dirty = files !== saved;
  const current = files.find((f) => f.path === chosen) ?? files.find((f) => f.path === "main.tf") ?? files[0];
  const change = (next: File[]) => {
    setFiles(next);
    drafts.set(version.id, next);
  };
  const [edition, renew] = useState(0);
  const discard = () => {
    drafts.delete(version.id);
    setFiles(saved);
    renew(edition + 1);
  };
  useEffect(() => {
    if (!dirty) return;
    const warn = (e: BeforeUnloadEvent) => e.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, [dirty]);
  const goTo = (p: Position) => {
    compare(false);
    choose(p.file);
    lead({ ...p });
  };
  // A version that failed opens at its first error.
  const led = useRef(false);
  const first = problems[0];
  useEffect(() => {
    if (led.current || !first) return;
    led.current = true;
    if (!attempt) goTo(first);
  }, [first, attempt]);
  const reached = useCallback(() => lead(undefined), []);
  const start = useMutation({
    mutationFn: async () => {
      const archive = new Blob([writeTar(files)], { type: "application/x-tar" });
      const { hash } = await send("POST files", { body: archive });
      return createVersion(
        { file_id: hash, template_id: template.id, tags: version.job.tags, name, message },
        template.organization_id,
      );
    },
    onSuccess: (v) => {
      setAttempt({ id: v.id, files });
      setName(nextName(name));
    },
  });
  const again = useMutation({
    mutationFn: async (values: VariableValue[]) =>
      reimport(await get("templateversions/{templateversion}", { templateversion: attempt!.id }), values, template),
    onSuccess: (v) => setAttempt({ id: v.id, files: attempt!.files }),
  });
  const cancel = useMutation({
    mutationFn: () => send("PATCH templateversions/{templateversion}/cancel", { templateversion: attempt!.id }),
  });
  const activate = useMutation({
    mutationFn: () => activateVersion(template.id, attempt!.id),
    onSuccess: () => navigate(paths.template(refOf(template))),
  });
  useEffect(() => {
    if (state === "succeeded" && !dirty) drafts.delete(version.id);
  }, [state, dirty, version.id]);
  const put = (path: string) => {
    if (naming === "rename" && current) change(inOrder(files.map((f) => (f === current ? { ...f, path } : f))));
    else change(inOrder([...files, { path, content: new Uint8Array() }]));
    choose(path);
    ask(undefined);
  };
  const running = state === "running" || start.isPending;
  return (
    <>
      <div className="flex flex-wrap gap-2">
        <Button aria-pressed={!comparing} className={pressed} onClick={() => compare(false)}>
          Edit
        </Button>
        <Button aria-pressed={comparing} className={pressed} onClick={() => compare(true)}>
          Changes
        </Button>
        {dirty && !running && (
          <Button look="quiet" onClick={discard}>
            Discard edits
          </Button>
        )}
      </div>
      {comparing ? (
        <Diff before={base} after={files} than={`the active version ${active.name}`} />
      ) : (
        <Card flush>
          <div className="grid min-w-0 md:grid-cols-[14rem_minmax(0,1fr)]">
            <div className="border-line p-2 max-md:border-b md:border-r">
              <ul className="max-h-[60vh] overflow-y-auto" aria-label="Files">
                {files.map((f) => (
                  <li key={f.path}>
                    <button
                      type="button"
                      aria-current={f === current || undefined}
                      onClick={() => choose(f.path)}
                      className={cx(
                        "flex w-full items-center gap-2 rounded px-2 py-1 text-left hover:bg-raised",
                        f === current && "bg-accent-soft font-medium",
                        problems.some((p) => p.file === f.path) && "text-bad",
                      )}
                    >
                      <FileText className="size-4 shrink-0 text-muted" aria-hidden />
                      <span className="truncate">{f.path}</span>
                    </button>
                  </li>
                ))}
              </ul>
              <Button small look="quiet" disabled={running} onClick={() => ask("add")}>
                <FilePlus /> Add file
              </Button>
            </div>
            {current && (
              <div className="min-w-0">
                <div className="flex items-center gap-1 border-b border-line py-1 pr-2 pl-4">
                  <span className="min-w-0 flex-1 truncate font-mono text-[13px]">{current.path}</span>
                  <IconButton label={`Rename ${current.path}`} disabled={running} onClick={() => ask("rename")}>
                    <Pencil />
                  </IconButton>
                  <IconButton
                    label={`Remove ${current.path}`}
                    disabled={running}
                    onClick={() => change(files.filter((f) => f !== current))}
                  >
                    <Trash2 />
                  </IconButton>
                </div>
                <Text
                  file={current}
                  edition={edition}
                  problems={problems}
                  locked={running}
                  target={target}
                  kept={kept.current}
                  onReached={reached}
                  onChange={(content) => change(files.map((f) => (f === current ? { ...f, content } : f)))}
                />
              </div>
            )}
          </div>
        </Card>
      )}
      {naming && (
        <PathDialog
          title={naming === "add" ? "Add a file" : `Rename ${current?.path}`}
          path={naming === "rename" ? (current?.path ?? "") : ""}
          taken={files.map((f) => f.path)}
          onPath={put}
          onClose={() => ask(undefined)}
        />
      )}
      {job?.status === "failed" && <Failure job={job} problems={problems} files={files} onGo={goTo} />}
      {state === "canceled" && <Note tone="warn" title="Import canceled" />}
      {attempt && job?.error_code === "REQUIRED_TEMPLATE_VARIABLES" && (
        <Card title="Variables">
          <VariablesForm version={attempt.id} request={again} />
        </Card>
      )}
      {attempt && job && <ImportLog job={job} log={log} />}
      {state === "running" && (
        <div>
          <Button busy={cancel.isPending} onClick={() => cancel.mutate()}>
            Cancel import
          </Button>
        </div>
      )}
      {state === "succeeded" && !dirty ? (
        <Card title="Import succeeded">
          <Form
            request={activate}
            submit="Activate version"
            cancel={<LinkButton href={`${paths.template(address)}/versions`}>Not now</LinkButton>}
          >
            <p className="text-muted">New workspaces use it immediately, existing ones after their next update.</p>
          </Form>
        </Card>
      ) : (
        <Card title="New version">
          <Form
            request={start}
            submit="Import"
            disabled={!dirty || files.length === 0 || running}
            cancel={<LinkButton href={paths.version(address, version.name)}>Cancel</LinkButton>}
          >
            <div className="grid gap-4 sm:grid-cols-2">
              <TextField
                label="Name"
                name="name"
                value={name}
                onChange={setName}
                maxLength={64}
                hint="Leave it empty for a generated name."
              />
              <TextField
                label="Message"
                name="message"
                value={message}
                onChange={setMessage}
                maxLength={1024}
                hint="Describe what changed."
              />
            </div>
            <p className="text-muted">
              {running
                ? "The files can be edited again after the import."
                : dirty
                  ? "The import checks the files. You activate the version after it."
                  : "Change a file to import a new version."}
            </p>
          </Form>
        </Card>
      )}
    </>
  );
}

// An import that was started here, and what it imports.
interface Attempt {
  id: string;
  files: File[];
}

// useAttempt follows an import; without one it is about that of the version itself. Its problems stay the same list
// until the import's result changes.
function useAttempt(attempt: Attempt | undefined, version: TemplateVersion, files: File[]) {
  const followed = useQuery({ ...queries.version(attempt?.id ?? ""), enabled: attempt !== undefined });
  const job = attempt ? followed.data?.job : version.job;
  const log = useVersionLog(attempt?.id ?? version.id, Boolean(job?.completed_at));
  const paths = files.map((f) => f.path).join("\n");
  const problems = useMemo(() => {
    const all = paths.split("\n");
    return (job ? failuresOf(job, log.lines) : []).map((p) => ({
      ...p,
      file: all.includes(p.file) ? p.file : (all.find((path) => path.endsWith(`/${p.file}`)) ?? p.file),
    }));
  }, [job, log.lines, paths]);
  return { job, log, problems };
}

interface FailureProps {
  job: ProvisionerJob;
  problems: Position[];
  files: File[];
  onGo: (to: Position) => void;
}

// Failure lists what an import failed at; each place leads to its line.
function Failure({ job, problems, files, onGo }: FailureProps) {
  return (
    <Note title="Import failed">
      {problems.length === 0
        ? job.error
        : problems.map((p) => (
            <p key={`${p.file}:${p.line}:${p.message}`}>
              {files.some((f) => f.path === p.file) ? (
                <button type="button" className="font-mono text-accent underline" onClick={() => onGo(p)}>
                  {p.file}, line {p.line}
                </button>
              ) : (
                <span className="font-mono">
                  {p.file}, line {p.line}, in a module
                </span>
              )}
              : {p.message}
            </p>
          ))}
    </Note>
  );
}

const pressed = "aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent";

const inOrder = (files: File[]) => files.toSorted((a, b) => a.path.localeCompare(b.path));

// problemOf says why a path cannot be a file's.
function problemOf(path: string, taken: string[]): string {
  if (/^\/|\\|(^|\/)\.{0,2}(\/|$)/.test(path)) return "Enter a path inside the template, such as scripts/start.sh.";
  if (taken.includes(path)) return `${path} already exists.`;
  if (taken.some((t) => t.startsWith(`${path}/`))) return `${path} is a folder.`;
  const file = taken.find((t) => path.startsWith(`${t}/`));
  return file ? `${file} is a file, not a folder.` : "";
}

interface PathDialogProps {
  title: string;
  path: string;
  taken: string[];
  onPath: (path: string) => void;
  onClose: () => void;
}

function PathDialog({ title, path: before, taken, onPath, onClose }: PathDialogProps) {
  const [path, setPath] = useState(before);
  const request = useMutation({
    mutationFn: async () => {
      const problem = problemOf(
        path,
        taken.filter((t) => t !== before),
      );
      if (problem) throw new Error(problem);
      onPath(path);
    },
  });
  return (
    <FormDialog
      title={title}
      request={request}
      submit="Save"
      disabled={path === "" || path === before}
      onClose={onClose}
    >
      <TextField label="Path" value={path} onChange={setPath} maxLength={100} autoComplete="off" spellCheck={false} />
    </FormDialog>
  );
}

const largest = 512 << 10; // bytes that can be edited

const CodeEditor = lazy(() => import("~/components/code/editor"));

interface TextProps extends Omit<ComponentProps<typeof CodeEditor>, "path" | "text" | "onChange"> {
  file: File;
  onChange: (content: Uint8Array<ArrayBuffer>) => void;
}

// Text edits one file.
function Text({ file, onChange, ...rest }: TextProps) {
  const text = useMemo(() => (file.content.length > largest ? undefined : textOf(file.content)), [file.content]);
  if (text === undefined)
    return (
      <p className="p-4 text-muted">
        {bytes(file.content.length)}: binary and large files cannot be edited here. They stay in the new version.
      </p>
    );
  return (
    <Suspense fallback={<Loading what="editor" />}>
      <CodeEditor
        path={file.path}
        text={text}
        onChange={(changed) => onChange(new TextEncoder().encode(changed))}
        {...rest}
      />
    </Suspense>
  );
}
