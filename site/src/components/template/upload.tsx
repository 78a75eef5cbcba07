// The source of a template: a folder on this computer, or a starter that comes with the server.
import { useQuery } from "@tanstack/react-query";
import { FolderUp } from "lucide-react";
import { type DragEvent, useEffect, useRef, useState } from "react";
import { queries } from "~/api/queries";
import { cx } from "~/components/ui/cx";
import { ErrorNote } from "~/components/ui/error-note";
import { Choice } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";
import { Note } from "~/components/ui/note";
import { Pending } from "~/components/ui/pending";
import { bytes, plural } from "~/lib/format";
import { type File as Packed, wanted, writeTar } from "~/lib/tar";
import { read } from "~/lib/tree";

export type Source = { kind: "folder"; name: string; archive: Blob } | { kind: "starter"; id: string };

const limit = 10 << 20; // bytes, the server's limit

// pack reads files as the browser names them: the folder's own name comes first.
async function pack(files: { path: string; file: Blob }[]): Promise<Packed[]> {
  const chosen = files.filter((f) => wanted(f.path));
  if (chosen.reduce((sum, f) => sum + f.file.size, 0) > limit)
    throw new Error(
      `The folder is larger than ${bytes(limit)}, the limit for a template. Remove files that it does not need.`,
    );
  return Promise.all(chosen.map(async (f) => ({ path: f.path, content: new Uint8Array(await f.file.arrayBuffer()) })));
}

export function FolderInput({ onChange }: { onChange: (source: Source | undefined) => void }) {
  const input = useRef<HTMLInputElement>(null);
  const [said, say] = useState("");
  const [error, setError] = useState<unknown>();
  const [over, setOver] = useState(false);
  useEffect(() => input.current?.setAttribute("webkitdirectory", ""), []);
  const take = async (files: { path: string; file: Blob }[]) => {
    setError(undefined);
    try {
      const name = files[0]?.path.split("/")[0] ?? "template";
      const packed = await pack(files.map((f) => ({ ...f, path: f.path.split("/").slice(1).join("/") || f.path })));
      if (!packed.some((f) => /^[^/]+\.tf(\.json)?$/.test(f.path)))
        throw new Error("This folder has no Terraform files (*.tf). Choose the folder that contains main.tf.");
      say(`${name}: ${plural(packed.length, "file")}, ${bytes(packed.reduce((n, f) => n + f.content.length, 0))}`);
      onChange({ kind: "folder", name, archive: new Blob([writeTar(packed)], { type: "application/x-tar" }) });
    } catch (err) {
      say("");
      setError(err);
      onChange(undefined);
    }
  };
  const drop = async (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const entries = [...event.dataTransfer.items].map((i) => i.webkitGetAsEntry()).filter((e) => e !== null);
    const items = (await Promise.all(entries.map((e) => read(e, { wanted })))).flat();
    await take(items.flatMap(({ path, file }) => (file ? [{ path, file }] : [])));
  };
  return (
    <div className="flex flex-col gap-2">
      <label
        onDragOver={(e) => {
          e.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(e) => void drop(e)}
        className={cx(
          "flex flex-col items-center gap-1 rounded-md",
          "border border-dashed border-edge px-4 py-7 text-center hover:bg-raised",
          "has-focus-visible:outline-2 has-focus-visible:outline-accent",
          over && "bg-accent-soft",
        )}
      >
        <FolderUp className="size-6 text-muted" aria-hidden />
        <span className="font-medium">{said || "Choose a folder or drop it here"}</span>
        <span className="text-[13px] text-muted">
          Terraform files and the files they use. State and .terraform are skipped.
        </span>
        <input
          ref={input}
          type="file"
          multiple
          className="sr-only"
          aria-label="Template folder"
          onChange={(e) =>
            void take([...(e.target.files ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file })))
          }
        />
      </label>
      <ErrorNote error={error} />
    </div>
  );
}

export function StarterChoice({ value, onChange }: { value: string; onChange: (id: string) => void }) {
  const examples = useQuery(queries.examples());
  if (!examples.data) return <Pending query={examples} what="starters" />;
  if (examples.data.length === 0)
    return <Note tone="warn">This server has no starter templates. Upload a folder instead.</Note>;
  const sorted = examples.data.toSorted((a, b) => a.name.localeCompare(b.name));
  return (
    <div role="radiogroup" aria-label="Starter" className="grid gap-2 sm:grid-cols-2">
      {sorted.map((e) => (
        <Choice
          key={e.id}
          type="radio"
          name="starter"
          title={e.name}
          about={e.description}
          icon={<Icon src={e.icon} name={e.name} className="size-6" />}
          checked={value === e.id}
          onChange={() => onChange(e.id)}
        />
      ))}
    </div>
  );
}
