// The buttons and the menu that start, stop, update and delete a workspace. A page has one useWorkspaceActions and one
// ActionDialogs, however many workspaces it lists.
import { CircleStop, Play, RefreshCw, Rocket, Star, Sunrise, Trash2, X } from "lucide-react";
import { type ReactNode, useCallback, useState } from "react";
import { type Action, usePerform, usePerforming } from "~/api/actions";
import type { Workspace } from "~/api/types";
import { Confirm } from "./dialog";
import { Item, MoreMenu, Separator } from "./menu";
import { isBusy } from "./status";
import { Button, ErrorNote } from "./ui";
import { mayEditTemplates, useMe } from "./user";

interface Question {
  title: (name: string) => string;
  button: string;
  danger?: boolean; // the workspace's name must be typed
  text: string;
}

// The actions that the user must confirm.
const questions: Partial<Record<Action, Question>> = {
  stop: {
    title: (name) => `Stop ${name}?`,
    button: "Stop",
    text: "Running programs stop. Files that the template keeps, usually the home folder, remain.",
  },
  update: {
    title: (name) => `Update ${name}?`,
    button: "Update",
    text: "Rebuilds the workspace from the active version with the same parameters. Running programs may stop.",
  },
  delete: {
    title: (name) => `Delete ${name}?`,
    button: "Delete",
    danger: true,
    text: "Destroys all its resources, including files. This cannot be undone.",
  },
  forget: {
    title: (name) => `Delete ${name} without destroying its resources?`,
    button: "Delete",
    danger: true,
    text: "Removes the workspace, but its resources keep running. You must delete them yourself.",
  },
};

type Act = (workspace: Workspace, action: Action) => void;

// useWorkspaceActions performs actions, and asks first where questions has an entry.
export function useWorkspaceActions() {
  const { mutate, mutateAsync, error } = usePerform();
  const [asking, ask] = useState<{ workspace: Workspace; action: Action } | null>(null);
  const act: Act = useCallback(
    (workspace, action) => (questions[action] ? ask({ workspace, action }) : mutate({ workspace, action })),
    [mutate],
  );
  return { act, busy: usePerforming(), asking, close: () => ask(null), confirm: mutateAsync, error };
}

// can lists what is possible now. busy: the server has not answered the last request yet.
function can(w: Workspace, busy: boolean) {
  const { status, job } = w.latest_build;
  const idle = !isBusy(status) && !busy;
  return {
    build: w.permissions.build,
    idle,
    start: idle && status !== "running" && status !== "deleted",
    stop: idle && (status === "running" || status === "failed" || status === "canceled"),
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
  const button = (action: Action, label: string, children: ReactNode, primary = false) => (
    <Button
      small={small}
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
  if (may.idle && w.dormant_at)
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
    <Button small={small} busy disabled>
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
          <Item icon={<Play />} disabled={!may.start} onSelect={() => act(w, "start")}>
            Start
          </Item>
          <Item icon={<CircleStop />} disabled={!may.stop} onSelect={() => act(w, "stop")}>
            Stop
          </Item>
          <Item icon={<RefreshCw />} disabled={!may.stop} onSelect={() => act(w, "restart")}>
            Restart
          </Item>
        </>
      )}
      {may.build && w.outdated && (
        <Item icon={<Rocket />} disabled={!may.idle} onSelect={() => act(w, "update")}>
          Update to the active version
        </Item>
      )}
      <Item icon={<Star />} onSelect={() => act(w, "favorite")}>
        {w.favorite ? "Remove from favorites" : "Add to favorites"}
      </Item>
      {w.permissions.delete && (
        <>
          <Separator />
          <Item icon={<Trash2 />} danger disabled={!may.idle} onSelect={() => act(w, "delete")}>
            Delete…
          </Item>
        </>
      )}
      {w.permissions.delete && w.latest_build.status === "failed" && admin && (
        <Item icon={<Trash2 />} danger disabled={!may.idle} onSelect={() => act(w, "forget")}>
          Delete without destroying resources…
        </Item>
      )}
    </MoreMenu>
  );
}

export function ActionDialogs({ actions }: { actions: ReturnType<typeof useWorkspaceActions> }) {
  const { asking, close, confirm, error } = actions;
  const question = asking && questions[asking.action];
  if (question) {
    const { name } = asking.workspace;
    return (
      <Confirm
        title={question.title(name)}
        action={question.button}
        {...(question.danger ? { danger: true, typed: name } : {})}
        onConfirm={() => confirm(asking)}
        onClose={close}
      >
        {question.text}
      </Confirm>
    );
  }
  return error ? (
    <div className="fixed right-4 bottom-4 z-40 max-w-md">
      <ErrorNote error={error} />
    </div>
  ) : null;
}
