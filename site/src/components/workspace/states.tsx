// The Terraform states that a workspace's builds left, and the way back to one of them.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { reread } from "~/api/actions";
import { post } from "~/api/client";
import { followBuild } from "~/api/follow";
import { queries } from "~/api/queries";
import type { StoredState, Workspace } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Confirm } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { Pending } from "~/components/ui/pending";
import { isBusy } from "~/components/ui/status";
import { Table } from "~/components/ui/table";
import { bytes, plural, words } from "~/lib/format";
import { paths } from "~/lib/path";

export default function WorkspaceStates({ workspace: w }: { workspace: Workspace }) {
  const { id, status } = w.latest_build;
  const states = useQuery(queries.workspaceStates(w.id, `${id} ${status}`));
  const [asked, ask] = useState<StoredState>();
  if (!states.data) return <Pending query={states} what="states" />;
  return (
    <Card
      title="Terraform states"
      flush
      actions={<DocsLink to="provisioners#read-and-replace-a-state">States</DocsLink>}
    >
      <Table
        label="Terraform states"
        rows={states.data}
        id={(s) => s.build_id}
        columns={[
          {
            name: "Build",
            cell: (s) => (
              <Link className="hover:underline" href={paths.build(w.owner_name, w.name, s.build_number)}>
                {s.build_number} · {words(s.transition)}
                {s.job_status !== "succeeded" && `, ${s.job_status}`}
              </Link>
            ),
          },
          { name: "Time", cell: (s) => <Ago at={s.created_at} /> },
          { name: "By", cell: (s) => s.initiator_name },
          { name: "Serial", cell: (s) => !s.problem && s.serial },
          { name: "Resources", cell: (s) => !s.problem && s.resources },
          { name: "Size", cell: (s) => (s.problem ? <span className="text-muted">{s.problem}</span> : bytes(s.size)) },
          {
            name: "Restore",
            action: true,
            cell: (s) =>
              s.build_id === id ? (
                <span className="text-[13px] text-muted">current</span>
              ) : (
                !s.problem && (
                  <Button small disabled={isBusy(status)} onClick={() => ask(s)}>
                    Restore
                  </Button>
                )
              ),
          },
        ]}
      />
      <p className="px-4 pb-3 text-[13px] text-muted">
        A state lists the resources that builds manage. The server keeps those of the newest builds.
      </p>
      {asked && <Restore workspace={w} state={asked} onClose={() => ask(undefined)} />}
    </Card>
  );
}

function Restore({
  workspace: w,
  state: s,
  onClose,
}: {
  workspace: Workspace;
  state: StoredState;
  onClose: () => void;
}) {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const restore = async () => {
    const build = await post("workspacebuilds/{workspacebuild}/restore", {
      workspacebuild: s.build_id,
      body: { reason: "dashboard" },
    });
    followBuild(client, build);
    await reread(client, w.id);
    navigate(paths.workspace(w.owner_name, w.name));
  };
  return (
    <Confirm
      title={`Restore the state of build ${s.build_number}?`}
      action="Restore and build"
      danger
      onConfirm={restore}
      onClose={onClose}
    >
      <p>
        Builds {w.name} again ({w.latest_build.transition}) from the {plural(s.resources, "resource")} of that state.
        Running programs may stop.
      </p>
      <p className="mt-2">
        Resources that were created since are not in it. No build changes or deletes them: they stay behind, and you
        must delete them yourself. Resources that were deleted since are created again, without their data.
      </p>
    </Confirm>
  );
}
