// The files of a template version, read in the browser from its archive.
import { useQuery } from "@tanstack/react-query";
import { FileText } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { getBytes } from "~/api/client";
import { cx } from "~/components/ui/cx";
import { ErrorNote } from "~/components/ui/error-note";
import { Loading } from "~/components/ui/loading";
import { Note } from "~/components/ui/note";
import type { Position } from "~/lib/diagnostic";
import { bytes } from "~/lib/format";
import { coloured, type Piece } from "~/lib/hcl";
import { readTar } from "~/lib/tar";
import { CodeLine } from "./line";

// An archive never changes, so a cached one is always fresh.
export const useFiles = (file: string | undefined) =>
  useQuery({
    queryKey: ["file", file],
    enabled: file !== undefined,
    queryFn: async () =>
      readTar((await getBytes("files/{file}", { file: file!, query: { format: "tar" } })) as Uint8Array<ArrayBuffer>),
    staleTime: Infinity,
  });

export const shownBytes = 256 << 10; // of one file

// linesOf is a file's text in its colours; undefined if it is binary.
export function linesOf(path: string, content: Uint8Array): Piece[][] | undefined {
  const head = content.subarray(0, shownBytes);
  if (head.subarray(0, 4096).includes(0)) return undefined;
  return coloured(path, new TextDecoder().decode(head).replace(/\n$/, "").split("\n"));
}

export function Files({ file, at }: { file: string; at?: Position | undefined }) {
  const files = useFiles(file);
  const [chosen, choose] = useState(at?.file);
  const all = files.data?.files;
  const current = all?.find((f) => f.path === chosen) ?? all?.find((f) => f.path === "main.tf") ?? all?.[0];
  const lines = useMemo(() => current && linesOf(current.path, current.content), [current]);
  if (files.error) return <ErrorNote error={files.error} title="Cannot show the files" />;
  if (!all) return <Loading what="files" />;
  return (
    <div className="grid min-w-0 md:grid-cols-[14rem_minmax(0,1fr)]">
      <ul className="max-h-[70vh] overflow-y-auto border-line p-2 max-md:border-b md:border-r" aria-label="Files">
        {all.map((f) => (
          <li key={f.path}>
            <button
              type="button"
              aria-current={f === current || undefined}
              onClick={() => choose(f.path)}
              title={`${f.path}, ${bytes(f.content.length)}`}
              className={cx(
                "flex w-full items-center gap-2 rounded px-2 py-1 text-left hover:bg-raised",
                f === current && "bg-accent-soft font-medium",
              )}
            >
              <FileText className="size-4 shrink-0 text-muted" aria-hidden /> <span className="truncate">{f.path}</span>
            </button>
          </li>
        ))}
      </ul>
      {current &&
        (lines ? (
          <Code lines={lines} label={current.path} mark={current.path === at?.file ? at.line : 0} />
        ) : (
          <p className="p-4 text-muted">Binary file, {bytes(current.content.length)}.</p>
        ))}
    </div>
  );
}

interface CodeProps {
  lines: Piece[][];
  label: string;
  mark: number;
  first?: number;
}

// Code shows lines with their numbers.
export function Code({ lines, label, mark, first = 1 }: CodeProps) {
  const marked = useRef<HTMLDivElement>(null);
  useEffect(() => {
    void marked.current?.scrollIntoView({ block: "center" }); // a promise in some browsers
  }, [mark, label]);
  return (
    <div
      className="max-h-[70vh] min-w-0 overflow-auto py-2 font-mono text-[12.5px] leading-5"
      tabIndex={0}
      role="region"
      aria-label={label}
    >
      <div className="w-max min-w-full">
        {lines.map((line, i) => (
          <div
            key={i}
            ref={first + i === mark ? marked : undefined}
            className={cx("flex whitespace-pre", first + i === mark && "bg-bad-soft")}
          >
            <span className="w-12 shrink-0 pr-4 text-right text-muted select-none" aria-hidden>
              {first + i}
            </span>
            <span className="pr-4">
              <CodeLine pieces={line} />
            </span>
          </div>
        ))}
      </div>
    </div>
  );
}

// Excerpt shows the line of an error and the lines around it.
export function Excerpt({ file, at }: { file: string; at: Position }) {
  const files = useFiles(file);
  const source = files.data?.files.find((f) => f.path === at.file || f.path.endsWith(`/${at.file}`));
  const lines = source && linesOf(source.path, source.content);
  const first = Math.max(1, at.line - 4);
  return (
    <div className="overflow-hidden rounded-md border border-line">
      <p className="border-b border-line px-3 py-1.5 font-mono text-[13px]">
        {at.file}, line {at.line}
      </p>
      {lines ? (
        <Code
          lines={lines.slice(first - 1, at.line + 4)}
          first={first}
          mark={at.line}
          label={`${at.file} around line ${at.line}`}
        />
      ) : files.isPending ? (
        <Loading what="file" />
      ) : (
        <Note tone="warn">This file belongs to a module, not to the template.</Note>
      )}
    </div>
  );
}
