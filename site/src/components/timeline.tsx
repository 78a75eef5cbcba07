import type { JobLog, WorkspaceBuild } from "~/api/types";
import { duration } from "~/lib/format";
import { useNow } from "~/lib/hooks";
import { type Phase, phases } from "~/lib/phases";
import { cx } from "./ui";

const fills: Record<Phase["kind"], string> = { wait: "bg-muted", stage: "bg-accent", agent: "bg-ok", script: "bg-warn" };

// Timeline draws a build's phases against time, one below the other.
export function Timeline({ build, lines }: { build: WorkspaceBuild; lines: JobLog[] }) {
  const all = phases(build, lines);
  const running = all.some((p) => p.to === undefined);
  const now = useNow(500, running);
  const start = Math.min(...all.map((p) => p.from));
  const end = Math.max(...all.map((p) => p.to ?? now), start + 1);
  const share = (ms: number) => `${Math.max(0, (100 * ms) / (end - start))}%`;
  return (
    <div>
      <ol className="flex flex-col gap-1.5" aria-label="Phases of the build">
        {all.map((p, i) => (
          <li key={i} className="grid grid-cols-[minmax(0,11rem)_1fr_4.5rem] items-center gap-3 max-sm:grid-cols-[minmax(0,1fr)_auto]">
            <span className={cx("truncate text-[13px]", p.failed && "text-bad")} title={p.name}>{p.name}</span>
            <span className="relative h-3 rounded-sm bg-raised max-sm:order-last max-sm:col-span-2" aria-hidden>
              <span
                className={cx("absolute inset-y-0 min-w-0.5 rounded-sm", p.failed ? "bg-bad" : fills[p.kind], p.to === undefined && "animate-pulse")}
                style={{ left: share(p.from - start), width: share((p.to ?? now) - p.from) }}
              />
            </span>
            <span className="text-right text-[13px] text-muted tabular-nums">{duration((p.to ?? now) - p.from)}</span>
          </li>
        ))}
      </ol>
      <p className="mt-3 text-[13px] text-muted">{running ? "So far" : "In all"} {duration(end - start)}, from the request on.</p>
    </div>
  );
}
