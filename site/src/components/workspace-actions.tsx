// The buttons and the menu that start, stop, update and delete a workspace.
import { useMutation } from "@tanstack/react-query";
import { CircleStop, Ellipsis, Play, RefreshCw, Rocket, Star, Trash2, X } from "lucide-react";
import { useState } from "react";
import { useBuild, useRestart } from "~/api/actions";
import { send } from "~/api/client";
import type { Workspace } from "~/api/types";
import { Confirm } from "./dialog";
import { Item, Menu, Separator } from "./menu";
import { isBusy } from "./status";
import { Button, ErrorNote, IconButton } from "./ui";
import { mayEditTemplates, useMe } from "./user";

export function useWorkspaceActions(workspace: Workspace) {
  const build = useBuild(workspace);
  const again = useRestart(workspace);
  const cancel = useMutation({
    mutationFn: () => send("PATCH", `workspacebuilds/${workspace.latest_build.id}/cancel`),
  });
  const favorite = useMutation({
    mutationFn: () => send(workspace.favorite ? "DELETE" : "PUT", `workspaces/${workspace.id}/favorite`),
  });
  const [asking, ask] = useState<"delete" | "orphan" | "stop" | "update" | null>(null);
  const { status, job } = workspace.latest_build;
  const idle = !isBusy(status) && !again.isPending && !build.isPending;
  const version = workspace.outdated ? { template_version_id: workspace.template_active_version_id } : {};
  return {
    workspace,
    build,
    again,
    cancel,
    favorite,
    asking,
    ask,
    idle,
    error: build.error ?? again.error ?? cancel.error ?? favorite.error,
    start: () => build.mutate({ transition: "start" }),
    stop: () => build.mutateAsync({ transition: "stop" }),
    update: () => build.mutateAsync({ transition: "start", ...version }),
    remove: (orphan: boolean) => build.mutateAsync({ transition: "delete", ...(orphan ? { orphan } : {}) }),
    canStart: idle && status !== "running" && status !== "deleted",
    canStop: idle && (status === "running" || status === "failed" || status === "canceled"),
    canCancel: (job.status === "pending" || job.status === "running") && !again.isPending,
  };
}

type Actions = ReturnType<typeof useWorkspaceActions>;

// PrimaryAction is the one thing that is most likely wanted now.
export function PrimaryAction({ actions, small }: { actions: Actions; small?: boolean }) {
  const name = actions.workspace.name;
  const size = small ? { small } : {};
  if (actions.canCancel)
    return (
      <Button
        {...size}
        onClick={() => actions.cancel.mutate()}
        busy={actions.cancel.isPending}
        aria-label={`Cancel the build of ${name}`}
      >
        <X /> Cancel
      </Button>
    );
  if (actions.canStart)
    return (
      <Button {...size} look={small ? "plain" : "primary"} onClick={actions.start} aria-label={`Start ${name}`}>
        <Play /> Start
      </Button>
    );
  if (actions.canStop)
    return (
      <Button {...size} onClick={() => actions.ask("stop")} aria-label={`Stop ${name}`}>
        <CircleStop /> Stop
      </Button>
    );
  return (
    <Button {...size} busy disabled>
      Wait
    </Button>
  );
}

export function ActionMenu({ actions }: { actions: Actions }) {
  const { workspace, ask, idle } = actions;
  const keeper = mayEditTemplates(useMe()); // what is forgotten may go on running and cost
  return (
    <Menu
      trigger={
        <IconButton label={`More for ${workspace.name}`}>
          <Ellipsis />
        </IconButton>
      }
    >
      <Item icon={<Play />} disabled={!actions.canStart} onSelect={actions.start}>
        Start
      </Item>
      <Item icon={<CircleStop />} disabled={!actions.canStop} onSelect={() => ask("stop")}>
        Stop
      </Item>
      <Item icon={<RefreshCw />} disabled={!actions.canStop} onSelect={() => actions.again.mutate(undefined)}>
        Restart
      </Item>
      {workspace.outdated && (
        <Item icon={<Rocket />} disabled={!idle} onSelect={() => ask("update")}>
          Update to the active version
        </Item>
      )}
      <Item icon={<Star />} onSelect={() => actions.favorite.mutate()}>
        {workspace.favorite ? "Remove from favorites" : "Add to favorites"}
      </Item>
      <Separator />
      <Item icon={<Trash2 />} danger disabled={!idle} onSelect={() => ask("delete")}>
        Delete…
      </Item>
      {workspace.latest_build.status === "failed" && keeper && (
        <Item icon={<Trash2 />} danger disabled={!idle} onSelect={() => ask("orphan")}>
          Forget without destroying…
        </Item>
      )}
    </Menu>
  );
}

export function ActionDialogs({ actions }: { actions: Actions }) {
  const { workspace, asking, ask } = actions;
  const close = () => ask(null);
  switch (asking) {
    case "stop":
      return (
        <Confirm title={`Stop ${workspace.name}?`} action="Stop" onConfirm={actions.stop} onClose={close}>
          Running programs stop. What the template keeps, usually the home folder, stays.
        </Confirm>
      );
    case "update":
      return (
        <Confirm title={`Update ${workspace.name}?`} action="Update" onConfirm={actions.update} onClose={close}>
          The workspace is rebuilt from the template's active version with the same parameters. Running programs may
          stop.
        </Confirm>
      );
    case "delete":
      return (
        <Confirm
          title={`Delete ${workspace.name}?`}
          action="Delete"
          danger
          typed={workspace.name}
          onConfirm={() => actions.remove(false)}
          onClose={close}
        >
          All its resources are destroyed, including its files. This cannot be undone.
        </Confirm>
      );
    case "orphan":
      return (
        <Confirm
          title={`Forget ${workspace.name}?`}
          action="Forget"
          danger
          typed={workspace.name}
          onConfirm={() => actions.remove(true)}
          onClose={close}
        >
          The workspace is removed, but its resources keep running and must be cleaned up by hand.
        </Confirm>
      );
  }
  return actions.error ? (
    <div className="fixed right-4 bottom-4 z-40 max-w-md">
      <ErrorNote error={actions.error} />
    </div>
  ) : null;
}
