// The files of a workspace: a folder at a time, with uploads, downloads and previews.
import { useMutation, useQuery } from "@tanstack/react-query";
import {
  Download,
  File,
  FileSymlink,
  Folder,
  FolderPlus,
  FolderUp,
  House,
  Pencil,
  RefreshCw,
  Trash2,
  Upload,
} from "lucide-react";
import { type DragEvent, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { getBytes, send } from "~/api/client";
import { archiveURL, contentURL, folder } from "~/api/files";
import type { AgentFile, Workspace, WorkspaceAgent } from "~/api/types";
import { Code, linesOf, shownBytes } from "~/components/code/files";
import { Ago } from "~/components/ui/ago";
import { Button, buttonClass } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { cx } from "~/components/ui/cx";
import { Confirm, FormDialog } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { Select, TextField } from "~/components/ui/form";
import { IconButton } from "~/components/ui/icon-button";
import { Loading } from "~/components/ui/loading";
import { Note } from "~/components/ui/note";
import { agentsOf } from "~/components/ui/status";
import { mono, Table } from "~/components/ui/table";
import { bytes, plural } from "~/lib/format";
import { paths } from "~/lib/path";
import { messageOf } from "~/lib/toasts";
import { type Item, mostItems, read, tooMany } from "~/lib/tree";
import { below, crumbsOf, isPicture, nameError, sorted, type SortBy } from "~/lib/workspace-files";
import { Uploads, useUploads } from "./file-uploads";

const pictureLimit = 20 << 20; // bytes of one that is shown

export default function WorkspaceFiles({ workspace: w }: { workspace: Workspace }) {
  const search = new URLSearchParams(useSearch());
  const [, navigate] = useLocation();
  const agents = w.latest_build.transition === "start" ? agentsOf(w.latest_build) : [];
  const agent = agents.find((a) => a.name === search.get("agent")) ?? agents[0];
  if (!agent)
    return (
      <Card>
        <Empty icon={<Folder />} title="The workspace is not running">
          {w.dormant_at ? "Wake and start it" : "Start it"} to see its files. They are kept while it is stopped.
        </Empty>
      </Card>
    );
  const choice = agents.length > 1 && (
    <Select
      aria-label="Agent"
      className="!w-auto"
      value={agent.name}
      onChange={(e) => navigate(paths.files(w.owner_name, w.name, e.target.value))}
    >
      {agents.map((a) => (
        <option key={a.id}>{a.name}</option>
      ))}
    </Select>
  );
  if (agent.status !== "connected")
    return (
      <Card title="Files" actions={choice}>
        <Empty icon={<Folder />} title={`The agent ${agent.name} is not connected`}>
          Its files appear here as soon as it is. The overview says what it waits for.
        </Empty>
      </Card>
    );
  const path = search.get("path") ?? "";
  const to = (p: string) => paths.files(w.owner_name, w.name, agents.length > 1 ? agent.name : "", p);
  return <Browser key={agent.id} agent={agent} path={path} to={to} choice={choice} />;
}

type Asking = { what: "folder" } | { what: "rename" | "delete"; file: AgentFile };

interface BrowserProps {
  agent: WorkspaceAgent;
  path: string; // "" is the home folder
  to: (path: string) => string; // the page that shows a folder
  choice: ReactNode; // of another agent
}

function Browser({ agent, path, to, choice }: BrowserProps) {
  const listing = useQuery(folder(agent.id, path));
  const [by, sortBy] = useState<SortBy>("name");
  const [asking, ask] = useState<Asking>();
  const [shown, show] = useState<{ folder: string; name: string }>();
  const [over, setOver] = useState(false);
  const [refused, refuse] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const folderInput = useRef<HTMLInputElement>(null);
  useEffect(() => folderInput.current?.setAttribute("webkitdirectory", ""), []);
  const refresh = () => void listing.refetch();
  const uploads = useUploads(agent.id, refresh);
  const at = listing.data?.path ?? path;
  const files = useMemo(() => sorted(listing.data?.files ?? [], by), [listing.data, by]);
  const previewed = shown?.folder === at ? files.find((f) => f.name === shown.name) : undefined;
  const take = (chosen: Iterable<globalThis.File>) => uploads.add(at, [...chosen], new Set(files.map((f) => f.name)));
  const takeTree = (items: Item[]) => {
    if (items.length > mostItems) return refuse(tooMany(mostItems));
    refuse(items.length === 0 ? "The folder has no files." : "");
    uploads.addTree(at, items);
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    refuse("");
    const items = [...event.dataTransfer.items].filter((i) => i.kind === "file");
    const folders = items.flatMap((i) => {
      const entry = i.webkitGetAsEntry();
      return entry?.isDirectory ? [entry] : [];
    });
    take(items.filter((i) => !i.webkitGetAsEntry()?.isDirectory).flatMap((i) => i.getAsFile() ?? []));
    for (const folder of folders)
      read(folder, { most: mostItems }).then(takeTree, (err: unknown) => refuse(messageOf(err)));
  };
  const ready = listing.data !== undefined;
  return (
    <div
      className={cx("flex min-w-0 flex-col gap-4 rounded-lg", over && "outline-2 outline-accent")}
      onDragOver={(e) => {
        if (!ready || !e.dataTransfer.types.includes("Files")) return;
        e.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(e) => ready && drop(e)}
    >
      {refused && <Note tone="warn">{refused}</Note>}
      <Uploads of={uploads} />
      {previewed && (
        <Preview
          key={below(at, previewed.name)}
          agent={agent.id}
          path={below(at, previewed.name)}
          file={previewed}
          onClose={() => show(undefined)}
        />
      )}
      <Card
        flush
        title="Files"
        actions={
          <div className="flex flex-wrap items-center gap-2">
            {choice}
            <input
              ref={input}
              type="file"
              multiple
              className="hidden"
              aria-label="Files to upload"
              onChange={(e) => {
                take(e.target.files ?? []);
                e.target.value = "";
              }}
            />
            <Button small disabled={!ready} onClick={() => input.current?.click()}>
              <Upload aria-hidden /> Upload
            </Button>
            <input
              ref={folderInput}
              type="file"
              multiple
              className="hidden"
              aria-label="Folder to upload"
              onChange={(e) => {
                takeTree([...(e.target.files ?? [])].map((file) => ({ path: file.webkitRelativePath, file })));
                e.target.value = "";
              }}
            />
            <Button small disabled={!ready} onClick={() => folderInput.current?.click()}>
              <FolderUp aria-hidden /> Upload folder
            </Button>
            <Button small disabled={!ready} onClick={() => ask({ what: "folder" })}>
              <FolderPlus aria-hidden /> New folder
            </Button>
            <IconButton label="Refresh" onClick={refresh} disabled={listing.isFetching}>
              <RefreshCw />
            </IconButton>
          </div>
        }
      >
        <Crumbs path={at} to={to} />
        {listing.error ? (
          <div className="p-4">
            <ErrorNote error={listing.error} title="Cannot show this folder" />
          </div>
        ) : !listing.data ? (
          <Loading what="files" />
        ) : files.length === 0 ? (
          <Empty icon={<Folder />} title="This folder is empty">
            Drop files and folders here to upload them.
          </Empty>
        ) : (
          <Table
            label="Files"
            rows={files}
            id={(f) => f.name}
            columns={[
              {
                name: "Name",
                sort: { on: by === "name", by: () => sortBy("name") },
                cell: (f) => (
                  <Name of={f} href={to(below(at, f.name))} onOpen={() => show({ folder: at, name: f.name })} />
                ),
              },
              {
                name: "Size",
                sort: { on: by === "size", by: () => sortBy("size") },
                className: "whitespace-nowrap tabular-nums",
                cell: (f) => (isFile(f) ? bytes(f.size) : "–"),
              },
              {
                name: "Modified",
                sort: { on: by === "modified", by: () => sortBy("modified") },
                className: "whitespace-nowrap",
                cell: (f) => <Ago at={f.modified_at} />,
              },
              { name: "Permissions", className: mono, cell: (f) => f.mode },
              {
                name: "Actions",
                action: true,
                cell: (f) => (
                  <span className="inline-flex">
                    {(isFile(f) || kindOf(f) === "folder") && (
                      <a
                        href={(isFile(f) ? contentURL : archiveURL)(agent.id, below(at, f.name))}
                        download
                        aria-label={`Download ${f.name}`}
                        title={`Download ${f.name}`}
                        className={linkLook}
                      >
                        <Download aria-hidden />
                      </a>
                    )}
                    <IconButton label={`Rename ${f.name}`} onClick={() => ask({ what: "rename", file: f })}>
                      <Pencil />
                    </IconButton>
                    <IconButton label={`Delete ${f.name}`} onClick={() => ask({ what: "delete", file: f })}>
                      <Trash2 />
                    </IconButton>
                  </span>
                ),
              },
            ]}
          />
        )}
        {listing.data && (
          <p className="border-t border-line px-4 py-2 text-[13px] text-muted" role="status">
            {listing.data.cut
              ? `The folder has more: these are ${plural(files.length, "entry", "entries")} of it.`
              : plural(files.length, "entry", "entries")}{" "}
            <DocsLink to="files">Files</DocsLink>
          </p>
        )}
      </Card>
      {asking && <Asked asking={asking} agent={agent.id} folder={at} onDone={refresh} onClose={() => ask(undefined)} />}
    </div>
  );
}

// As an IconButton.
const linkLook = "inline-flex size-8 items-center justify-center rounded-md hover:bg-raised [&_svg]:size-4";

// kindOf is what a file is, or what a link leads to.
const kindOf = (f: AgentFile) => f.link_kind ?? f.kind;
const isFile = (f: AgentFile) => kindOf(f) === "file";

// Name leads into a folder, or shows a file.
function Name({ of: f, href, onOpen }: { of: AgentFile; href: string; onOpen: () => void }) {
  const Picture = f.kind === "link" ? FileSymlink : f.kind === "folder" ? Folder : File;
  const look = "min-w-0 text-left font-medium [overflow-wrap:anywhere] hover:underline";
  // Where links beyond the first ones lead is not known: they may be folders.
  const opens = kindOf(f) === "folder" || (f.kind === "link" && !f.link_target);
  return (
    <span className="flex min-w-0 items-start gap-2">
      <Picture
        className={cx("mt-0.5 size-4 shrink-0", f.kind === "folder" ? "text-accent" : "text-muted")}
        aria-hidden
      />
      <span className="min-w-0">
        {opens ? (
          <Link href={href} className={look}>
            {f.name}
          </Link>
        ) : isFile(f) ? (
          <button type="button" className={look} onClick={onOpen}>
            {f.name}
          </button>
        ) : (
          <span className="[overflow-wrap:anywhere]">{f.name}</span>
        )}
        {f.link_target && (
          <span className="block text-[13px] [overflow-wrap:anywhere] text-muted">leads to {f.link_target}</span>
        )}
      </span>
    </span>
  );
}

function Crumbs({ path, to }: { path: string; to: (path: string) => string }) {
  const crumbs = crumbsOf(path);
  return (
    <nav aria-label="Folder" className="flex flex-wrap items-center gap-1 border-b border-line px-3 py-1.5">
      <Link href={to("")} aria-label="Home folder" title="Home folder" className={buttonClass("quiet", true)}>
        <House aria-hidden />
      </Link>
      {crumbs.map((c, i) => (
        <span key={c.path} className="flex min-w-0 items-center gap-1">
          {i > 1 && (
            <span aria-hidden className="text-muted">
              /
            </span>
          )}
          <Link
            href={to(c.path)}
            aria-current={i === crumbs.length - 1 ? "page" : undefined}
            className={cx(
              "rounded px-1 font-mono text-[13px] [overflow-wrap:anywhere] hover:underline",
              i === crumbs.length - 1 && "font-semibold",
            )}
          >
            {c.name}
          </Link>
        </span>
      ))}
    </nav>
  );
}

interface AskedProps {
  asking: Asking;
  agent: string;
  folder: string;
  onDone: () => void;
  onClose: () => void;
}

// Asked is the dialog before a change.
function Asked({ asking, agent, folder: at, onDone, onClose }: AskedProps) {
  const old = asking.what === "folder" ? "" : asking.file.name;
  const [name, setName] = useState(old);
  const request = useMutation({
    mutationFn: (): Promise<unknown> =>
      asking.what === "folder"
        ? send("PUT workspaceagents/{workspaceagent}/files/folder", {
            workspaceagent: agent,
            query: { path: below(at, name) },
          })
        : send("PATCH workspaceagents/{workspaceagent}/files", {
            workspaceagent: agent,
            body: { path: below(at, old), new_path: below(at, name) },
          }),
    onSuccess: () => {
      onDone();
      onClose();
    },
  });
  if (asking.what === "delete")
    return (
      <Confirm
        title={`Delete ${old}?`}
        action="Delete"
        danger
        onConfirm={() =>
          send("DELETE workspaceagents/{workspaceagent}/files", {
            workspaceagent: agent,
            query: { path: below(at, old) },
          }).then(onDone)
        }
        onClose={onClose}
      >
        {asking.file.kind === "folder"
          ? "The folder must be empty."
          : asking.file.kind === "link"
            ? "The link is deleted, and what it leads to is kept."
            : "The file cannot be restored."}
      </Confirm>
    );
  const wrong = name === old ? "" : nameError(name);
  return (
    <FormDialog
      title={asking.what === "folder" ? "New folder" : `Rename ${old}`}
      request={request}
      submit={asking.what === "folder" ? "Create" : "Rename"}
      disabled={name === old || wrong !== ""}
      onClose={onClose}
    >
      <TextField
        label="Name"
        value={name}
        onChange={setName}
        hint={wrong}
        autoComplete="off"
        autoCapitalize="off"
        spellCheck={false}
        required
      />
    </FormDialog>
  );
}

interface PreviewProps {
  agent: string;
  path: string;
  file: AgentFile;
  onClose: () => void;
}

// Preview shows a text in its colours, or a picture.
function Preview({ agent, path, file, onClose }: PreviewProps) {
  const top = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    top.current?.focus();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <div
      ref={top}
      tabIndex={-1}
      role="region"
      aria-label={`Preview of ${file.name}`}
      onKeyDown={(e) => e.key === "Escape" && onClose()}
    >
      <Card
        flush
        title={<span className="[overflow-wrap:anywhere]">{file.name}</span>}
        actions={
          <div className="flex items-center gap-2">
            <a href={contentURL(agent, path)} download className={buttonClass("plain", true)}>
              <Download aria-hidden /> Download
            </a>
            <Button small onClick={onClose}>
              Close
            </Button>
          </div>
        }
      >
        {isPicture(file.name) ? (
          <PicturePreview agent={agent} path={path} file={file} />
        ) : (
          <TextPreview agent={agent} path={path} file={file} />
        )}
      </Card>
    </div>
  );
}

type Shown = Omit<PreviewProps, "onClose">;

function PicturePreview({ agent, path, file }: Shown) {
  const [broken, setBroken] = useState(false);
  if (file.size > pictureLimit)
    return <p className="p-4 text-muted">The picture is larger than {bytes(pictureLimit)}. Download it to see it.</p>;
  if (broken) return <p className="p-4 text-muted">The browser cannot show this picture. Download it to see it.</p>;
  return (
    <img
      src={contentURL(agent, path)}
      alt={file.name}
      className="mx-auto max-h-[60vh] max-w-full object-contain p-4"
      onError={() => setBroken(true)}
    />
  );
}

function TextPreview({ agent, path, file }: Shown) {
  const content = useQuery({
    queryKey: ["agent-file", agent, path, file.modified_at],
    queryFn: () =>
      getBytes("workspaceagents/{workspaceagent}/files/content", {
        workspaceagent: agent,
        query: { path, limit: shownBytes },
      }),
    staleTime: Infinity,
    gcTime: 0,
    retry: false,
  });
  const lines = useMemo(() => content.data && linesOf(path, content.data), [path, content.data]);
  if (content.error)
    return (
      <div className="p-4">
        <ErrorNote error={content.error} title="Cannot show the file" />
      </div>
    );
  if (!content.data) return <Loading what="file" />;
  if (!lines) return <p className="p-4 text-muted">Binary file, {bytes(file.size)}. Download it to use it.</p>;
  return (
    <>
      {file.size > shownBytes && (
        <p className="border-b border-line px-4 py-2 text-[13px] text-muted" role="status">
          These are the first {bytes(shownBytes)} of {bytes(file.size)}.
        </p>
      )}
      <Code lines={lines} label={file.name} mark={0} />
    </>
  );
}
