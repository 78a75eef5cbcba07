// The files of a template version, edited in the browser: the result is imported as a new version.
import { useMutation, useQuery } from "@tanstack/react-query";
import { FilePlus, FileText, Pencil, Trash2 } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { send } from "~/api/client";
import { useVersionLog } from "~/api/logs";
import { queries } from "~/api/queries";
import { createVersion } from "~/api/templates";
import type { Template, TemplateVersion, UploadResponse } from "~/api/types";
import { FormDialog } from "~/components/dialog";
import { Diff } from "~/components/diff";
import { useFiles } from "~/components/files";
import { Form, TextField } from "~/components/form";
import { failureOf } from "~/components/import-result";
import { Button, Card, cx, IconButton, LinkButton, Note, Page, PendingPage } from "~/components/ui";
import { textOf } from "~/lib/diff";
import { bytes } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { importing, paths } from "~/lib/path";
import { type File, writeTar } from "~/lib/tar";

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
  const at = failureOf(version.job, useVersionLog(version.id, Boolean(version.job.completed_at)).lines);
  const [files, setFiles] = useState(() => drafts.get(version.id) ?? original);
  const [chosen, choose] = useState<string>();
  const [comparing, compare] = useState(false);
  const [naming, ask] = useState<"add" | "rename">();
  const [name, setName] = useState("");
  const [message, setMessage] = useState("");
  const dirty = files !== original;
  const wanted = chosen ?? at?.file;
  const current = files.find((f) => f.path === wanted) ?? files.find((f) => f.path === "main.tf") ?? files[0];
  const change = (next: File[]) => {
    setFiles(next);
    drafts.set(version.id, next);
  };
  useEffect(() => {
    if (!dirty) return;
    const warn = (e: BeforeUnloadEvent) => e.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, [dirty]);
  const start = useMutation({
    mutationFn: async () => {
      const archive = new Blob([writeTar(files)], { type: "application/x-tar" });
      const { hash } = await send<UploadResponse>("POST", "files", archive);
      return createVersion(
        { file_id: hash, template_id: template.id, tags: version.job.tags, name, message },
        template.organization_id,
      );
    },
    onSuccess: (v) => {
      drafts.delete(version.id);
      navigate(importing(v.id, "", address));
    },
  });
  const put = (path: string) => {
    if (naming === "rename" && current) change(inOrder(files.map((f) => (f === current ? { ...f, path } : f))));
    else change(inOrder([...files, { path, content: new Uint8Array() }]));
    choose(path);
    ask(undefined);
  };
  return (
    <>
      {at && <Note title={`${at.file}, line ${at.line}`}>{at.message}</Note>}
      <div className="flex flex-wrap gap-2">
        <Button aria-pressed={!comparing} className={pressed} onClick={() => compare(false)}>
          Edit
        </Button>
        <Button aria-pressed={comparing} className={pressed} onClick={() => compare(true)}>
          Changes
        </Button>
        {dirty && (
          <Button look="quiet" onClick={() => (drafts.delete(version.id), setFiles(original))}>
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
                        f.path === at?.file && "text-bad",
                      )}
                    >
                      <FileText className="size-4 shrink-0 text-muted" aria-hidden />
                      <span className="truncate">{f.path}</span>
                    </button>
                  </li>
                ))}
              </ul>
              <Button small look="quiet" onClick={() => ask("add")}>
                <FilePlus /> Add file
              </Button>
            </div>
            {current && (
              <div className="min-w-0">
                <div className="flex items-center gap-1 border-b border-line py-1 pr-2 pl-4">
                  <span className="min-w-0 flex-1 truncate font-mono text-[13px]">{current.path}</span>
                  <IconButton label={`Rename ${current.path}`} onClick={() => ask("rename")}>
                    <Pencil />
                  </IconButton>
                  <IconButton
                    label={`Remove ${current.path}`}
                    onClick={() => change(files.filter((f) => f !== current))}
                  >
                    <Trash2 />
                  </IconButton>
                </div>
                <Text
                  key={current.path}
                  file={current}
                  line={current.path === at?.file ? at.line : 0}
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
      <Card title="New version">
        <Form
          request={start}
          submit="Import"
          disabled={!dirty || files.length === 0}
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
            {dirty
              ? "The import checks the files. You activate the version after it."
              : "Change a file to import a new version."}
          </p>
        </Form>
      </Card>
    </>
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

// Text edits one file. The numbers scroll with the text, which is as large as its content.
function Text({
  file,
  line,
  onChange,
}: {
  file: File;
  line: number;
  onChange: (content: Uint8Array<ArrayBuffer>) => void;
}) {
  const area = useRef<HTMLTextAreaElement>(null);
  const text = useMemo(() => (file.content.length > largest ? undefined : textOf(file.content)), [file.content]);
  useEffect(() => {
    if (!area.current || line === 0) return;
    const from = area.current.value.split("\n", line - 1).join("\n").length + (line > 1 ? 1 : 0);
    area.current.focus();
    area.current.setSelectionRange(from, from);
  }, [line]);
  if (text === undefined)
    return (
      <p className="p-4 text-muted">
        {bytes(file.content.length)}: binary and large files cannot be edited here. They stay in the new version.
      </p>
    );
  const lines = text.split("\n");
  return (
    <div className="max-h-[60vh] overflow-auto py-2 font-mono text-[12.5px] leading-5">
      <div className="flex w-max min-w-full">
        <div className="w-12 shrink-0 pr-4 text-right text-muted select-none" aria-hidden>
          {lines.map((_, i) => (
            <div key={i} className={cx(i + 1 === line && "bg-bad-soft font-bold text-bad")}>
              {i + 1}
            </div>
          ))}
        </div>
        <textarea
          ref={area}
          aria-label={file.path}
          className="flex-1 resize-none overflow-hidden bg-transparent whitespace-pre outline-none"
          rows={lines.length}
          cols={lines.reduce((most, l) => Math.max(most, l.length), 20) + 2}
          spellCheck={false}
          autoCapitalize="off"
          autoComplete="off"
          wrap="off"
          value={text}
          onChange={(e) => onChange(new TextEncoder().encode(e.target.value))}
        />
      </div>
    </div>
  );
}
