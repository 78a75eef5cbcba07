// The buttons and the menu that start, stop, update and delete a workspace. A page has one useWorkspaceActions and one
// ActionDialogs, however many workspaces it lists.
import { CircleStop, CircleUser, Play, RefreshCw, Rocket, Star, Sunrise, Trash2, X } from "lucide-react";
import { lazy, type ReactNode, Suspense, useCallback, useState } from "react";
import { type Action, usePerform, usePerforming } from "~/api/actions";
import type { Workspace } from "~/api/types";
import { Button } from "~/components/ui/button";
import { Item, MoreMenu, Separator } from "~/components/ui/menu";
import { isBusy } from "~/components/ui/status";
import { mayEditTemplates, useMe } from "~/components/ui/user";
import { messageOf, toast } from "~/lib/toasts";

export const ActionDialog = lazy(() => import("./action-dialog"));
const UpdateDialog = lazy(() => import("./update-dialog"));
const TransferDialog = lazy(() => import("./transfer-dialog"));

// The actions that end nothing are done at once. The user must confirm all others.
const harmless = ["start", "cancel", "favorite", "wake"] as const satisfies readonly Action[];

export type Asked = Exclude<Action, (typeof harmless)[number]>;

export const asks = (action: Action): action is Asked => !(harmless as readonly Action[]).includes(action);

type Act = (workspace: Workspace, action: Action | "transfer") => void;

// useWorkspaceActions performs actions, and asks first where that is due.
export function useWorkspaceActions() {
  const { mutateAsync } = usePerform();
  const [asking, ask] = useState<{ workspace: Workspace; action: Asked | "transfer" } | null>(null);
  const act: Act = useCallback(
    (workspace, action) => {
      if (action === "transfer" || asks(action)) ask({ workspace, action });
      else
        mutateAsync({ workspace, action }).catch((err: unknown) =>
          toast({ tone: "bad", text: `${workspace.name}: ${messageOf(err)}` }),
        );
    },
    [mutateAsync],
  );
  return { act, busy: usePerforming(), asking, close: () => ask(null), confirm: mutateAsync };
}

// can lists what is possible now. busy: the server has not answered the last request yet.
export function can(w: Workspace, busy: boolean) {
  const { status, job } = w.latest_build;
  const idle = !isBusy(status) && !busy;
  const awake = !w.dormant_at; // the server starts no dormant workspace
  const stop = idle && (status === "running" || status === "failed" || status === "canceled");
  return {
    build: w.permissions.build,
    idle,
    wake: idle && !awake,
    start: idle && awake && status !== "running" && status !== "deleted",
    stop,
    restart: stop && awake,
    update: idle && awake && w.outdated,
    cancel:
      !busy &&
      w.template_allow_user_cancel_workspace_jobs !== false &&
      (job.status === "pending" || job.status === "running"),
  };
}

export interface ActionProps {
  workspace: Workspace;
  act: Act;
  busy: boolean;
}

// PrimaryAction is the button for the most likely action.
export function PrimaryAction({ workspace: w, act, busy, small = false }: ActionProps & { small?: boolean }) {
  const may = can(w, busy);
  if (!may.build) return null;
  // In a list, one below the other.
  const className = small ? "md:w-28" : "";
  const button = (action: Action, label: string, children: ReactNode, primary = false) => (
    <Button
      small={small}
      className={className}
      look={primary && !small ? "primary" : "plain"}
      onClick={() => act(w, action)}
      aria-label={`${label} ${w.name}`}
    >
      {children}
    </Button>
  );
  if (may.cancel)
    return button(
      "cancel",
      "Cancel the build of",
      <>
        <X /> Cancel
      </>,
    );
  if (may.wake)
    return button(
      "wake",
      "Wake",
      <>
        <Sunrise /> Wake
      </>,
      true,
    );
  if (may.start)
    return button(
      "start",
      "Start",
      <>
        <Play /> Start
      </>,
      true,
    );
  if (may.stop)
    return button(
      "stop",
      "Stop",
      <>
        <CircleStop /> Stop
      </>,
    );
  return (
    <Button small={small} className={className} busy disabled>
      Working…
    </Button>
  );
}

export function ActionMenu({ workspace: w, act, busy }: ActionProps) {
  const may = can(w, busy);
  const admin = mayEditTemplates(useMe()); // resources that are left behind may keep running and cost money
  return (
    <MoreMenu of={w.name}>
      {may.build && (
        <>
          {may.wake ? (
            <Item icon={<Sunrise />} onSelect={() => act(w, "wake")}>
              Wake
            </Item>
          ) : (
            <Item icon={<Play />} disabled={!may.start} onSelect={() => act(w, "start")}>
              Start
            </Item>
          )}
          <Item icon={<CircleStop />} disabled={!may.stop} onSelect={() => act(w, "stop")}>
            Stop…
          </Item>
          <Item icon={<RefreshCw />} disabled={!may.restart} onSelect={() => act(w, "restart")}>
            Restart…
          </Item>
        </>
      )}
      {may.build && w.outdated && (
        <Item icon={<Rocket />} disabled={!may.update} onSelect={() => act(w, "update")}>
          Update to the active version…
        </Item>
      )}
      <Item icon={<Star />} onSelect={() => act(w, "favorite")}>
        {w.favorite ? "Remove from favorites" : "Add to favorites"}
      </Item>
      {(w.permissions.delete || w.permissions.transfer) && <Separator />}
      {w.permissions.transfer && (
        <Item icon={<CircleUser />} disabled={!may.idle} onSelect={() => act(w, "transfer")}>
          Transfer…
        </Item>
      )}
      {w.permissions.delete && (
        <Item icon={<Trash2 />} danger disabled={!may.idle} onSelect={() => act(w, "delete")}>
          Delete…
        </Item>
      )}
      {w.permissions.delete && w.latest_build.status === "failed" && admin && (
        <Item icon={<Trash2 />} danger disabled={!may.idle} onSelect={() => act(w, "forget")}>
          Delete without destroying resources…
        </Item>
      )}
    </MoreMenu>
  );
}

export function ActionDialogs({
  actions: { asking, close, confirm },
}: {
  actions: ReturnType<typeof useWorkspaceActions>;
}) {
  if (!asking) return null;
  const { workspace, action } = asking;
  return (
    <Suspense>
      {action === "transfer" ? (
        <TransferDialog workspace={workspace} onClose={close} />
      ) : action === "update" ? (
        <UpdateDialog
          workspace={workspace}
          onConfirm={(parameters) => confirm({ workspace, action, parameters })}
          onClose={close}
        />
      ) : (
        <ActionDialog
          name={workspace.name}
          action={action}
          onConfirm={() => confirm({ workspace, action })}
          onClose={close}
        />
      )}
    </Suspense>
  );
}
