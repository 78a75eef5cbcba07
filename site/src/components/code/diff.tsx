import { useMemo } from "react";
import { Badge } from "~/components/ui/badge";
import { Card } from "~/components/ui/card";
import { cx } from "~/components/ui/cx";
import { Empty } from "~/components/ui/empty";
import { type Change, changes, hunks, type Line } from "~/lib/diff";
import { plural } from "~/lib/format";
import { coloured, type Piece } from "~/lib/hcl";
import type { File } from "~/lib/tar";
import { CodeLine } from "./line";

const tones = { added: "ok", removed: "bad", changed: "accent" } as const;
const signs = { same: " ", added: "+", removed: "−" };

// Diff shows how the files of a version differ from those of another.
export function Diff({ before, after, than }: { before: File[]; after: File[]; than: string }) {
  const found = useMemo(() => changes(before, after), [before, after]);
  if (found.length === 0)
    return (
      <Card>
        <Empty title="No changes">The files are those of {than}.</Empty>
      </Card>
    );
  return (
    <>
      <p className="text-muted">
        {plural(found.length, "file")} {found.length === 1 ? "differs" : "differ"} from {than}.
      </p>
      {found.map((change) => (
        <ChangeCard key={change.path} change={change} />
      ))}
    </>
  );
}

// coloursOf returns how to colour lines: each as it is in its own text, which may begin with a comment or a heredoc.
export function coloursOf(path: string, lines: Line[]): (line: Line) => Piece[] {
  const textWithout = (kind: Line["kind"]) =>
    coloured(
      path,
      lines.filter((l) => l.kind !== kind).map((l) => l.text),
    );
  const before = textWithout("added");
  const after = textWithout("removed");
  return ({ kind, number }) => (kind === "removed" ? before : after)[number - 1]!;
}

function ChangeCard({ change: { path, kind, lines } }: { change: Change }) {
  const colours = useMemo(() => coloursOf(path, lines ?? []), [path, lines]);
  const count = (of: "added" | "removed") => lines?.filter((l) => l.kind === of).length ?? 0;
  return (
    <Card
      flush
      title={<span className="font-mono text-[13px] break-all">{path}</span>}
      actions={
        <span className="flex items-center gap-2 text-[13px] tabular-nums">
          {lines && (
            <span>
              <span className="text-ok">+{count("added")}</span> <span className="text-bad">−{count("removed")}</span>
            </span>
          )}
          <Badge tone={tones[kind]}>{kind}</Badge>
        </span>
      }
    >
      {lines ? (
        <div
          className="max-h-[60vh] overflow-auto font-mono text-[12.5px] leading-5"
          tabIndex={0}
          role="region"
          aria-label={`Changes of ${path}`}
        >
          <div className="w-max min-w-full">
            {hunks(lines).map((hunk, i) => (
              <div key={i} className={cx(i > 0 && "border-t-4 border-line")}>
                {hunk.map((l) => (
                  <div
                    key={`${l.kind}${l.number}`}
                    className={cx(
                      "flex whitespace-pre",
                      l.kind === "added" && "bg-ok-soft",
                      l.kind === "removed" && "bg-bad-soft",
                    )}
                  >
                    <span className="w-12 shrink-0 pr-3 text-right text-muted select-none" aria-hidden>
                      {l.number}
                    </span>
                    <span className="w-4 shrink-0 select-none">{signs[l.kind]}</span>
                    <span className="pr-4">
                      <CodeLine pieces={colours(l)} />
                    </span>
                  </div>
                ))}
              </div>
            ))}
          </div>
        </div>
      ) : (
        <p className="p-4 text-muted">Binary file.</p>
      )}
    </Card>
  );
}
