// What happened to a workspace lately, and who did it.
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { lists, pageOf } from "~/api/lists";
import type { Workspace, WorkspaceBuild } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Card } from "~/components/ui/card";
import { ErrorNote } from "~/components/ui/error-note";
import { buildReasons, isBusy, jobTone, Dot } from "~/components/ui/status";
import { paths } from "~/lib/path";

const shown = 6;

export function Activity({ workspace: w }: { workspace: Workspace }) {
  const builds = useQuery(lists.builds(w.id, 0));
  const { rows } = pageOf(builds.data, 0);
  return (
    <Card
      flush
      title="Activity"
      actions={
        <Link
          className="text-[13px] text-accent hover:underline"
          href={paths.build(w.owner_name, w.name, w.latest_build.build_number)}
        >
          Show all
        </Link>
      }
    >
      {builds.error && <ErrorNote error={builds.error} />}
      <ol aria-label="Activity" className="divide-y divide-line">
        {rows.slice(0, shown).map((b) => (
          <li key={b.id} className="flex items-baseline gap-2.5 px-4 py-2">
            <Dot tone={jobTone[b.job.status] ?? "plain"} pulse={isBusy(b.status)} />
            <Link
              className="min-w-0 break-words hover:underline"
              href={paths.build(w.owner_name, w.name, b.build_number)}
            >
              {happened(b)}
            </Link>
            <span className="ml-auto shrink-0 text-[13px] text-muted">
              <Ago at={b.created_at} />
            </span>
          </li>
        ))}
      </ol>
    </Card>
  );
}

const verbs = {
  start: ["started it", "Started", "start"],
  stop: ["stopped it", "Stopped", "stop"],
  delete: ["deleted it", "Deleted", "deletion"],
} as const;

// The server began these builds, as its schedules say.
const automatic: string[] = ["autostart", "autostop", "dormancy", "autodelete"] satisfies WorkspaceBuild["reason"][];

// happened tells of a build in a few words.
export function happened(b: WorkspaceBuild): string {
  const [did, done, noun] = verbs[b.transition];
  const why = buildReasons[b.reason] ?? "";
  const auto = automatic.includes(b.reason);
  if (b.job.status === "failed") return `The ${noun} ${why && `${why} `}failed`;
  if (b.job.status === "canceled") return `The ${noun} was canceled`;
  return [auto ? done : `${b.initiator_name} ${did}`, why].filter(Boolean).join(" ");
}
