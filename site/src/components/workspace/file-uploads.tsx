// Uploads to a workspace, one after the other, with their progress. Those of a folder are shown as one.
import { Check } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { exists, upload } from "~/api/files";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { bytes, plural } from "~/lib/format";
import { messageOf } from "~/lib/toasts";
import { type Item, itemError } from "~/lib/tree";
import { below } from "~/lib/workspace-files";

interface Sending {
  id: number;
  tree: number; // of the folder that it belongs to, 0 for none
  folder: string; // where it is written
  path: string; // below the folder
  file?: File; // without one, it is an empty folder
  state: "exists" | "waiting" | "sending" | "done" | "failed";
  held: boolean; // the server has enough requests for now
  sent: number; // bytes
  error: string;
  overwrite: boolean;
}

const open = (u: Sending) => u.state === "waiting" || u.state === "sending";

// settled leaves out what has arrived, and folders of which everything has.
function settled(all: Sending[]): Sending[] {
  const unfinished = new Set(all.filter((u) => u.state !== "done").map((u) => u.tree));
  return all.filter((u) => u.state !== "done" || (u.tree !== 0 && unfinished.has(u.tree)));
}

// useUploads sends files to folders of an agent. onDone is called after each that has arrived, and for those of a
// folder once nothing is left to send.
export function useUploads(agent: string, onDone: () => void) {
  const [all, setAll] = useState<Sending[]>([]);
  const [running, setRunning] = useState<{ id: number; control: AbortController }>();
  const last = useRef(0);
  const done = useRef(onDone);
  done.current = onDone;
  const change = (which: (u: Sending) => boolean, to: Partial<Sending>) =>
    setAll((old) => old.map((u) => (which(u) ? { ...u, ...to } : u)));
  const next = running ? undefined : all.find((u) => u.state === "waiting");
  useEffect(() => {
    if (!next) return;
    const { id, tree, folder, path, file, overwrite } = next;
    const own = (u: Sending) => u.id === id;
    const control = new AbortController();
    setRunning({ id, control });
    change(own, { state: "sending", held: false, sent: 0, error: "" });
    upload({
      agent,
      ...(tree === 0 ? { path: below(folder, path) } : { path, below: folder }),
      ...(file && { file }),
      overwrite,
      signal: control.signal,
      onProgress: (sent) => change(own, { sent, held: false }),
      onWait: () => change(own, { sent: 0, held: true }),
    })
      .then(
        () => {
          change(own, { state: "done" });
          if (tree === 0) done.current();
        },
        (err: unknown) =>
          change(own, {
            state: exists(err) && !overwrite ? "exists" : "failed",
            error: control.signal.aborted ? "" : messageOf(err),
          }),
      )
      .finally(() => setRunning(undefined));
  }, [agent, next]);
  const busy = all.some((u) => u.tree !== 0 && open(u));
  const was = useRef(false);
  useEffect(() => {
    if (was.current && !busy) done.current();
    was.current = busy;
  }, [busy]);
  // Those who leave the page give up what it sends.
  const current = useRef(running);
  current.current = running;
  useEffect(() => () => current.current?.control.abort(), []);
  const add = (tree: number, folder: string, items: Item[], state: (item: Item) => Partial<Sending>) =>
    setAll((old) => [
      ...settled(old),
      ...items.map((item): Sending => {
        const fresh = { state: "waiting" as const, held: false, sent: 0, error: "", overwrite: false };
        return { id: ++last.current, tree, folder, ...fresh, ...item, ...state(item) };
      }),
    ]);
  const drop = (which: (u: Sending) => boolean) => {
    if (all.some((u) => u.id === running?.id && which(u))) running?.control.abort();
    setAll((old) => old.filter((u) => !which(u)));
  };
  return {
    all,
    add: (folder: string, files: File[], taken: ReadonlySet<string>) =>
      add(
        0,
        folder,
        files.map((file) => ({ path: file.name, file })),
        ({ path }) => ({ state: taken.has(path) ? "exists" : "waiting" }),
      ),
    addTree: (folder: string, items: Item[]) =>
      add(++last.current, folder, items, ({ path }) => {
        const error = itemError(path);
        return error ? { state: "failed", error } : {};
      }),
    replace: (which: (u: Sending) => boolean) =>
      change((u) => u.state === "exists" && which(u), { state: "waiting", overwrite: true }),
    again: (id: number) => change((u) => u.id === id, { state: "waiting" }),
    drop,
  };
}

type Of = ReturnType<typeof useUploads>;

export function Uploads({ of }: { of: Of }) {
  if (of.all.length === 0) return null;
  const trees = [...new Set(of.all.map((u) => u.tree))].filter((tree) => tree !== 0);
  return (
    <Card flush title="Uploads">
      <ul aria-label="Uploads" className="divide-y divide-line">
        {trees.map((tree) => (
          <Tree key={tree} of={of} tree={tree} items={of.all.filter((u) => u.tree === tree)} />
        ))}
        {of.all
          .filter((u) => u.tree === 0)
          .map((u) => (
            <One key={u.id} of={of} item={u} />
          ))}
      </ul>
    </Card>
  );
}

const shownItems = 50; // of a folder, at a time

// Tree is a folder: how far it is, and those of its files that are being sent or need a decision.
function Tree({ of, tree, items }: { of: Of; tree: number; items: Sending[] }) {
  const name = items[0]!.path.split("/")[0]!;
  const arrived = items.filter((u) => u.state === "done").length;
  const taken = items.filter((u) => u.state === "exists").length;
  const failed = items.filter((u) => u.state === "failed").length;
  const sending = items.some(open);
  const shown = items.filter((u) => u.state !== "done" && u.state !== "waiting");
  const own = (u: Sending) => u.tree === tree;
  const facts = [
    `${arrived} of ${plural(items.length, "file")} uploaded`,
    taken > 0 && `${taken} already there`,
    failed > 0 && `${failed} failed`,
  ];
  return (
    <li className="flex flex-col gap-1 px-4 py-2">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <span className="min-w-0 [overflow-wrap:anywhere]">{name}/</span>
        {sending && <Progress of={`${name}/`} value={arrived} max={items.length} />}
        <span role="status" className="text-[13px] text-muted">
          {facts.filter(Boolean).join(", ")}
        </span>
        <span className="ml-auto flex gap-2">
          {taken > 0 && (
            <Button small onClick={() => of.replace(own)}>
              Replace {taken}
              <span className="sr-only"> in {name}</span>
            </Button>
          )}
          {arrived === items.length ? (
            <Check className="size-4 text-ok" aria-hidden />
          ) : (
            <Button small onClick={() => of.drop(own)}>
              {sending ? "Cancel" : "Dismiss"}
              <span className="sr-only"> {name}</span>
            </Button>
          )}
        </span>
      </div>
      {shown.length > 0 && (
        <ul aria-label={`Files of ${name}`} className="divide-y divide-line">
          {shown.slice(0, shownItems).map((u) => (
            <One key={u.id} of={of} item={u} />
          ))}
          {shown.length > shownItems && (
            <li className="px-4 py-2 text-[13px] text-muted">and {shown.length - shownItems} more</li>
          )}
        </ul>
      )}
    </li>
  );
}

function Progress({ of, value, max }: { of: string; value: number; max: number }) {
  const label = `Progress of ${of}`;
  return <progress className="h-2 w-40 max-w-full accent-fill" aria-label={label} value={value} max={max || 1} />;
}

function One({ of: { replace, again, drop }, item: u }: { of: Of; item: Sending }) {
  const own = (other: Sending) => other.id === u.id;
  return (
    <li className="flex flex-wrap items-center gap-x-3 gap-y-1 px-4 py-2">
      <span className="min-w-0 [overflow-wrap:anywhere]">{u.path}</span>
      {u.state === "sending" && <Progress of={u.path} value={u.sent} max={u.file?.size ?? 0} />}
      <span role="status" className={u.state === "failed" ? "text-bad" : "text-[13px] text-muted"}>
        {describe(u)}
      </span>
      <span className="ml-auto flex gap-2">
        {u.state === "exists" && (
          <Button small onClick={() => replace(own)}>
            Replace<span className="sr-only"> {u.path}</span>
          </Button>
        )}
        {u.state === "failed" && (
          <Button small onClick={() => again(u.id)}>
            Try again<span className="sr-only">: {u.path}</span>
          </Button>
        )}
        {u.state === "done" ? (
          <Check className="size-4 text-ok" aria-hidden />
        ) : (
          <Button small onClick={() => drop(own)}>
            {u.state === "exists" ? "Skip" : u.state === "failed" ? "Dismiss" : "Cancel"}
            <span className="sr-only"> {u.path}</span>
          </Button>
        )}
      </span>
    </li>
  );
}

function describe({ state, file, held, sent, error }: Sending): string {
  const size = file?.size ?? 0;
  switch (state) {
    case "exists":
      return "There is a file with this name.";
    case "waiting":
      return "waits";
    case "sending":
      return held ? "waits: the server has enough requests for now" : `${bytes(sent)} of ${bytes(size)}`;
    case "done":
      return `${bytes(size)} uploaded`;
    case "failed":
      return error || "canceled";
  }
}
