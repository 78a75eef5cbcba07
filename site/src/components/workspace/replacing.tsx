// A start or stop that was refused because it would replace what the workspace keeps while it is stopped. The user may
// allow that.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { createBuild, orders, reread } from "~/api/actions";
import { followBuild } from "~/api/follow";
import type { Workspace } from "~/api/types";
import { Button } from "~/components/ui/button";
import { Confirm } from "~/components/ui/dialog";
import { Note } from "~/components/ui/note";
import { useMe } from "~/components/ui/user";

export default function Replacing({ workspace: w }: { workspace: Workspace }) {
  const client = useQueryClient();
  const resources = w.latest_build.would_replace ?? [];
  const { initiator_id: initiator, reason, transition } = w.latest_build;
  const stops = transition === "stop";
  // Undefined: it was requested elsewhere.
  const order = initiator === useMe().id && reason === "dashboard" ? orders[w.id] : undefined;
  const asleep = w.dormant_at && !stops;
  const may = w.permissions.build && w.permissions.delete && !asleep;
  const [asking, ask] = useState(may && order !== undefined);
  const build = useMutation({
    mutationFn: () =>
      createBuild(
        w.id,
        stops
          ? { transition, allow_replacing: resources }
          : {
              ...(w.outdated && { template_version_id: w.template_active_version_id }),
              ...order,
              transition: "start",
              allow_replacing: resources,
            },
      ),
    onSuccess: (build) => {
      followBuild(client, build);
      return reread(client, w.id);
    },
  });
  const action = stops ? "Replace and stop" : "Replace and start";
  const list = (
    <ul className="list-disc py-1 pl-5 font-mono text-[13px]">
      {resources.map((address) => (
        <li key={address}>{address}</li>
      ))}
    </ul>
  );
  return (
    <Note tone="warn" title={`The ${transition} would lose data`}>
      It would replace or delete what the workspace keeps while it is stopped. Nothing was changed.
      {list}
      {may ? (
        <Button small onClick={() => ask(true)}>
          {action}…
        </Button>
      ) : asleep ? (
        "Wake the workspace first."
      ) : (
        "The workspace's owner decides."
      )}
      {asking && (
        <Confirm
          title={`Replace what ${w.name} keeps?`}
          action={action}
          danger
          typed={w.name}
          onConfirm={build.mutateAsync}
          onClose={() => ask(false)}
        >
          These resources will be replaced or deleted, and their data will be lost. This cannot be undone.
          {list}
        </Confirm>
      )}
    </Note>
  );
}
