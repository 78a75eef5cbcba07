// What can be done to the selected workspaces of a list at once.
import { CircleStop, Play, Rocket, Sunrise, Trash2 } from "lucide-react";
import { type ReactNode, useState } from "react";
import { type Action, usePerform, usePerforming } from "~/api/actions";
import type { Workspace } from "~/api/types";
import { Button } from "~/components/ui/button";
import { Confirm } from "~/components/ui/dialog";
import { plural } from "~/lib/format";
import { messageOf, toast } from "~/lib/toasts";
import { can } from "./actions";

interface Bulk {
  action: Action;
  label: string;
  done: string;
  icon: ReactNode;
  suits: (w: Workspace, busy: boolean) => boolean;
  warning?: string; // asked before it is done
  danger?: boolean;
}

const wake: Bulk = {
  action: "wake",
  label: "Wake",
  done: "Woke",
  icon: <Sunrise />,
  suits: (w, busy) => can(w, busy).build && can(w, busy).wake,
};

const bulks: Bulk[] = [
  {
    action: "start",
    label: "Start",
    done: "Starting",
    icon: <Play />,
    suits: (w, busy) => can(w, busy).build && can(w, busy).start,
  },
  {
    action: "stop",
    label: "Stop",
    done: "Stopping",
    icon: <CircleStop />,
    suits: (w, busy) => can(w, busy).build && can(w, busy).stop,
    warning: "Running programs stop. Files that the template keeps, usually the home folder, remain.",
  },
  {
    action: "update",
    label: "Update",
    done: "Updating",
    icon: <Rocket />,
    suits: (w, busy) => can(w, busy).build && can(w, busy).update,
    warning:
      "Rebuilds the workspaces from the active versions of their templates with the same parameters. " +
      "Those that run are stopped and started again: running programs end.",
  },
  {
    action: "delete",
    label: "Delete",
    done: "Deleting",
    icon: <Trash2 />,
    suits: (w, busy) => w.permissions.delete && can(w, busy).idle,
    warning: "Destroys all their resources, including files. This cannot be undone.",
    danger: true,
  },
];

export default function BulkActions({ selected, onDone }: { selected: Workspace[]; onDone: () => void }) {
  const { mutateAsync } = usePerform();
  const performing = usePerforming();
  const [asking, ask] = useState<Bulk>();
  const [running, setRunning] = useState(false);
  const suitable = (bulk: Bulk) => selected.filter((w) => bulk.suits(w, performing.has(w.id)));

  // One after the other: the server queues the builds. Every workspace is tried.
  const run = async (bulk: Bulk) => {
    const wanted = suitable(bulk);
    const failures: string[] = [];
    setRunning(true);
    for (const workspace of wanted) {
      try {
        await mutateAsync({ workspace, action: bulk.action, quiet: true });
      } catch (err) {
        failures.push(`${workspace.name}: ${messageOf(err)}`);
      }
    }
    setRunning(false);
    const done = wanted.length - failures.length;
    if (done > 0) toast({ tone: "ok", text: `${bulk.done} ${plural(done, "workspace")}.` });
    if (failures.length > 0)
      toast({
        tone: "bad",
        text: `${bulk.done} ${plural(failures.length, "workspace")} failed. ${failures.join(" ")}`,
      });
    onDone();
  };

  const count = asking ? suitable(asking).length : 0;
  return (
    <>
      {[...(selected.some((w) => w.dormant_at) ? [wake] : []), ...bulks].map((bulk) => {
        const fit = suitable(bulk).length;
        return (
          <Button
            key={bulk.action}
            small
            look={bulk.danger ? "danger" : "plain"}
            disabled={fit === 0 || running}
            title={fit === 0 ? "Not possible for any selected workspace" : undefined}
            onClick={() => (bulk.warning ? ask(bulk) : void run(bulk))}
          >
            {bulk.icon} {bulk.label}
            {fit > 0 && fit < selected.length && ` ${fit} of ${selected.length}`}
            {bulk.danger && "…"}
          </Button>
        );
      })}
      {asking && (
        <Confirm
          title={`${asking.label} ${plural(count, "workspace")}?`}
          action={asking.label}
          {...(asking.danger ? { danger: true, typed: `delete ${count}` } : {})}
          onConfirm={() => run(asking)}
          onClose={() => ask(undefined)}
        >
          {asking.warning}
          <ul className="mt-2 max-h-40 list-disc overflow-y-auto pl-5">
            {suitable(asking).map((w) => (
              <li key={w.id}>
                {w.owner_name}/{w.name}
              </li>
            ))}
          </ul>
        </Confirm>
      )}
    </>
  );
}
