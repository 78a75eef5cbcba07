// What happens to a workspace without anyone asking, and why.
import { CalendarClock } from "lucide-react";
import type { ScheduledConsequence, Workspace } from "~/api/types";
import { useNow } from "~/lib/hooks";
import { isBusy } from "./status";
import { Ago, Note } from "./ui";

// Dormancy tells that a workspace is dormant and what follows. The page's primary action wakes it.
export function Dormancy({ workspace: w }: { workspace: Workspace }) {
  if (!w.dormant_at) return null;
  return (
    <Note
      tone="warn"
      title={
        <>
          Dormant since <Ago at={w.dormant_at} />
        </>
      }
    >
      {w.deleting_at ? "It will be deleted unless you wake it." : "It stays stopped until you wake it."}
    </Note>
  );
}

// Consequences lists what comes next. What is announced stands out.
export function Consequences({ workspace: w }: { workspace: Workspace }) {
  const now = useNow(30_000);
  const why = w.latest_build.explanation;
  if (isBusy(w.latest_build.status) || (!why && w.consequences.length === 0)) return null;
  const announced = (c: ScheduledConsequence) => c.announce_at !== null && Date.parse(c.announce_at) <= now;
  return (
    <>
      {w.consequences.filter(announced).map((c) => (
        <Note key={c.action} tone="warn" title={c.explanation} />
      ))}
      <ul aria-label="Schedule" className="flex flex-col gap-1 text-muted">
        {[why, ...w.consequences.filter((c) => !announced(c)).map((c) => c.explanation)]
          .filter((text) => text !== "")
          .map((text) => (
            <li key={text} className="flex items-start gap-2">
              <CalendarClock aria-hidden className="mt-0.5 size-4 shrink-0" /> {text}
            </li>
          ))}
      </ul>
    </>
  );
}
