import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { queries } from "~/api/queries";
import type { JobLog, WorkspaceBuild } from "~/api/types";
import { cx } from "~/components/ui/cx";
import { duration, plural } from "~/lib/format";
import { useNow } from "~/lib/hooks";
import { type Phase, phases } from "~/lib/phases";

const fills: Record<Phase["kind"], string> = {
  wait: "bg-muted",
  stage: "bg-accent",
  resource: "bg-accent/60",
  agent: "bg-ok",
  script: "bg-warn",
};

// How many resources are shown at first, the slowest ones.
const someResources = 8;

// Timeline draws a build's phases against time, one below the other.
export function Timeline({ build, lines }: { build: WorkspaceBuild; lines: JobLog[] }) {
  const known = useQuery(queries.buildTimings(build.id));
  const [open, setOpen] = useState(false);
  const all = phases(build, lines, known.data);
  const running = all.some((p) => p.to === undefined);
  const now = useNow(500, running);
  const start = Math.min(...all.map((p) => p.from));
  const end = Math.max(...all.map((p) => p.to ?? now), start + 1);
  const took = (p: Phase) => (p.to ?? now) - p.from;
  const share = (ms: number) => `${Math.max(0, (100 * ms) / (end - start))}%`;
  const longest = new Set(
    all
      .filter((p) => p.kind === "resource")
      .sort((a, b) => took(b) - took(a))
      .slice(0, someResources),
  );
  const shown = open ? all : all.filter((p) => p.kind !== "resource" || longest.has(p));
  const more = all.length - shown.length;
  return (
    <div>
      <ol className="flex flex-col gap-1.5" aria-label="Phases of the build">
        {shown.map((p, i) => (
          <li
            key={i}
            className={cx(
              "grid grid-cols-[minmax(0,24rem)_minmax(6rem,1fr)_4.5rem] items-center",
              "gap-3 max-sm:grid-cols-[minmax(0,1fr)_auto] max-sm:gap-y-0.5",
            )}
          >
            <span
              className={cx(
                "truncate text-[13px]",
                p.failed && "text-bad",
                p.kind === "resource" && "pl-3 font-mono text-xs text-muted",
              )}
              title={p.name}
            >
              {p.name}
            </span>
            <span
              className={cx(
                "relative rounded-sm bg-raised max-sm:order-last max-sm:col-span-2",
                p.kind === "resource" ? "h-2" : "h-3",
              )}
              aria-hidden
            >
              <span
                className={cx(
                  "absolute inset-y-0 min-w-0.5 rounded-sm",
                  p.failed ? "bg-bad" : fills[p.kind],
                  p.to === undefined && "animate-pulse",
                )}
                style={{ left: share(p.from - start), width: share(took(p)) }}
              />
            </span>
            <span className="text-right text-[13px] text-muted tabular-nums">{duration(took(p))}</span>
          </li>
        ))}
      </ol>
      <p className="mt-3 flex flex-wrap items-baseline gap-x-4 text-[13px] text-muted">
        <span>
          {running ? "So far" : "Total"} {duration(end - start)}
        </span>
        {more > 0 && (
          <button type="button" className="underline" onClick={() => setOpen(true)}>
            Show {plural(more, "more resource")}
          </button>
        )}
      </p>
    </div>
  );
}
