// What happens to a workspace without anyone asking, and why.
import { CalendarClock } from "lucide-react";
import type { ReactNode } from "react";
import { Link } from "wouter";
import type { ScheduledConsequence, Workspace } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Card } from "~/components/ui/card";
import { Note } from "~/components/ui/note";
import { isBusy } from "~/components/ui/status";
import { shortTime } from "~/lib/format";
import { useNow } from "~/lib/hooks";
import { paths } from "~/lib/path";
import { StopsSoon } from "./stopping";

// Dormancy tells that a workspace is dormant and what follows. The page's primary action wakes it.
export function Dormancy({ workspace: w }: { workspace: Workspace }) {
  if (!w.dormant_at) return null;
  const { status } = w.latest_build;
  const stopped = status === "stopped" || status === "deleting" || status === "deleted";
  return (
    <Note
      tone="warn"
      title={
        <>
          Dormant since <Ago at={w.dormant_at} />
        </>
      }
    >
      {stopped
        ? "It stays stopped until you wake it."
        : "What still runs of it is stopped, and stays so until you wake it."}
      {w.deleting_at && (
        <>
          {" "}
          It will be deleted on {shortTime(w.deleting_at)} (<Ago at={w.deleting_at} ahead />) unless you wake it.
        </>
      )}
    </Note>
  );
}

// Stops of the next minutes stand out, whether the template announces them or not.
const soon = 10 * 60_000; // ms

const announced = (now: number) => (c: ScheduledConsequence) =>
  (c.announce_at !== null && Date.parse(c.announce_at) <= now) ||
  (c.action === "stop" && c.at !== null && Date.parse(c.at) <= now + soon);

// Announced is what comes soon. When a dormant workspace is stopped and deleted, Dormancy tells.
export function Announced({ workspace: w }: { workspace: Workspace }) {
  const now = useNow(30_000);
  if (isBusy(w.latest_build.status)) return null;
  const told = (c: ScheduledConsequence) => w.dormant_at && (c.action === "delete" || c.action === "stop");
  return w.consequences
    .filter((c) => announced(now)(c) && !told(c))
    .map((c) =>
      c.action === "stop" && c.at ? (
        <StopsSoon key={c.action} workspace={w} stop={c} at={c.at} />
      ) : (
        <Note key={c.action} tone="warn" title={c.explanation}>
          <Here at={c.at} />
        </Note>
      ),
    );
}

// Consequences lists why the workspace is as it is, and what comes later.
export function Consequences({ workspace: w }: { workspace: Workspace }) {
  const now = useNow(30_000);
  const why = w.latest_build.explanation;
  const later = w.consequences.filter((c) => !announced(now)(c));
  if (isBusy(w.latest_build.status) || (!why && later.length === 0)) return null;
  return (
    <Card
      title="Schedule"
      actions={
        w.permissions.update && (
          <Link
            className="text-[13px] text-accent hover:underline"
            href={paths.workspaceSettings(w.owner_name, w.name)}
          >
            Change
          </Link>
        )
      }
    >
      <ul aria-label="Schedule" className="flex flex-col gap-2">
        {why && <Line>{why}</Line>}
        {later.map((c) => (
          <Line key={c.action}>
            {c.explanation}
            <Here at={c.at} />
          </Line>
        ))}
      </ul>
    </Card>
  );
}

const Line = ({ children }: { children: ReactNode }) => (
  <li className="flex items-start gap-2">
    <CalendarClock aria-hidden className="mt-0.5 size-4 shrink-0 text-muted" />
    <span>{children}</span>
  </li>
);

// Here is a moment in the reader's time zone: sentences of the server name it in the server's or the owner's.
const Here = ({ at }: { at: string | null }) =>
  at && (
    <span className="block text-[13px] text-muted">
      {shortTime(at)} your time, <Ago at={at} ahead />
    </span>
  );
