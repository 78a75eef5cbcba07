// Uploads to a workspace, one after the other, with their progress.
import { Check } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { upload } from "~/api/files";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { bytes } from "~/lib/format";
import { messageOf } from "~/lib/toasts";
import { below } from "~/lib/workspace-files";

interface Sending {
  id: number;
  folder: string;
  file: File;
  state: "exists" | "waiting" | "sending" | "done" | "failed";
  sent: number; // bytes
  error: string;
  overwrite: boolean;
}

// useUploads sends files to folders of an agent. onDone is called after each that has arrived.
export function useUploads(agent: string, onDone: () => void) {
  const [all, setAll] = useState<Sending[]>([]);
  const [running, setRunning] = useState<{ id: number; control: AbortController }>();
  const last = useRef(0);
  const done = useRef(onDone);
  done.current = onDone;
  const change = (id: number, to: Partial<Sending>) =>
    setAll((old) => old.map((u) => (u.id === id ? { ...u, ...to } : u)));
  const next = running ? undefined : all.find((u) => u.state === "waiting");
  useEffect(() => {
    if (!next) return;
    const control = new AbortController();
    setRunning({ id: next.id, control });
    change(next.id, { state: "sending", sent: 0, error: "" });
    upload({
      agent,
      path: below(next.folder, next.file.name),
      file: next.file,
      overwrite: next.overwrite,
      signal: control.signal,
      onProgress: (sent) => change(next.id, { sent }),
    })
      .then(
        () => {
          change(next.id, { state: "done" });
          done.current();
        },
        (err: unknown) => change(next.id, { state: "failed", error: control.signal.aborted ? "" : messageOf(err) }),
      )
      .finally(() => setRunning(undefined));
  }, [agent, next]);
  // Those who leave the page give up what it sends.
  const current = useRef(running);
  current.current = running;
  useEffect(() => () => current.current?.control.abort(), []);
  return {
    all,
    add: (folder: string, files: File[], taken: ReadonlySet<string>) =>
      setAll((old) => [
        ...old.filter((u) => u.state !== "done"),
        ...files.map((file): Sending => {
          const state = taken.has(file.name) ? "exists" : "waiting";
          return { id: ++last.current, folder, file, state, sent: 0, error: "", overwrite: false };
        }),
      ]),
    replace: (id: number) => change(id, { state: "waiting", overwrite: true }),
    again: (id: number) => change(id, { state: "waiting" }),
    drop: (id: number) => {
      if (running?.id === id) running.control.abort();
      setAll((old) => old.filter((u) => u.id !== id));
    },
  };
}

export function Uploads({ of: { all, replace, again, drop } }: { of: ReturnType<typeof useUploads> }) {
  if (all.length === 0) return null;
  return (
    <Card flush title="Uploads">
      <ul aria-label="Uploads" className="divide-y divide-line">
        {all.map((u) => (
          <li key={u.id} className="flex flex-wrap items-center gap-x-3 gap-y-1 px-4 py-2">
            <span className="min-w-0 [overflow-wrap:anywhere]">{u.file.name}</span>
            {u.state === "sending" && (
              <progress
                className="h-2 w-40 max-w-full accent-fill"
                aria-label={`Progress of ${u.file.name}`}
                value={u.sent}
                max={u.file.size || 1}
              />
            )}
            <span role="status" className={u.state === "failed" ? "text-bad" : "text-[13px] text-muted"}>
              {describe(u)}
            </span>
            <span className="ml-auto flex gap-2">
              {u.state === "exists" && (
                <Button small onClick={() => replace(u.id)}>
                  Replace<span className="sr-only"> {u.file.name}</span>
                </Button>
              )}
              {u.state === "failed" && (
                <Button small onClick={() => again(u.id)}>
                  Try again<span className="sr-only">: {u.file.name}</span>
                </Button>
              )}
              {u.state === "done" ? (
                <Check className="size-4 text-ok" aria-hidden />
              ) : (
                <Button small onClick={() => drop(u.id)}>
                  {u.state === "exists" ? "Skip" : u.state === "failed" ? "Dismiss" : "Cancel"}
                  <span className="sr-only"> {u.file.name}</span>
                </Button>
              )}
            </span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function describe({ state, file, sent, error }: Sending): string {
  switch (state) {
    case "exists":
      return "There is a file with this name.";
    case "waiting":
      return "waits";
    case "sending":
      return `${bytes(sent)} of ${bytes(file.size)}`;
    case "done":
      return `${bytes(file.size)} uploaded`;
    case "failed":
      return error || "canceled";
  }
}
