// How many prebuilt workspaces a template has, by preset, and what keeps the server from having more.
import { useQuery } from "@tanstack/react-query";
import { RefreshCw } from "lucide-react";
import { useState } from "react";
import { send } from "~/api/client";
import { queries } from "~/api/queries";
import type { Template } from "~/api/types";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { Confirm } from "~/components/ui/dialog";
import { DocsLink } from "~/components/ui/docs-link";
import { Table } from "~/components/ui/table";
import { useTemplatePermissions } from "~/components/ui/user";

export default function TemplatePrebuilds({ template: t }: { template: Template }) {
  const may = useTemplatePermissions(t.id);
  const { data, refetch } = useQuery(queries.templatePrebuilds(t.id));
  const [replacing, replace] = useState(false);
  if (!data?.length) return null;
  return (
    <Card
      title="Prebuilt workspaces"
      flush
      actions={
        may.update && (
          <Button small onClick={() => replace(true)}>
            <RefreshCw /> Replace all
          </Button>
        )
      }
    >
      <Table
        label="Prebuilt workspaces"
        rows={data}
        id={(p) => p.preset_id}
        columns={[
          { name: "Preset", cell: (p) => p.preset_name },
          { name: "Ready", cell: (p) => `${p.eligible} of ${p.desired}` },
          { name: "Claims", cell: (p) => p.claims && { instant: "Instant", wait: "Wait for their build" }[p.claims] },
        ]}
      />
      {data.map(
        (p) =>
          p.explanation && (
            <p key={p.preset_id} className="px-4 pb-3 text-[13px] text-muted">
              {p.preset_name}: {p.explanation}
            </p>
          ),
      )}
      {data.map(
        (p) =>
          p.claim_waits.length > 0 && (
            <div key={p.preset_id} className="px-4 pb-3 text-[13px] text-muted">
              Claims of {p.preset_name} wait for their build because of
              <ul className="ml-4 list-disc">
                {p.claim_waits.map((reason) => (
                  <li key={reason} className="break-words">
                    {reason}
                  </li>
                ))}
              </ul>
            </div>
          ),
      )}
      <p className="px-4 pb-3 text-[13px] text-muted">
        Users who choose such a preset get a workspace at once.{" "}
        <DocsLink to="prebuilds">About prebuilt workspaces</DocsLink>
      </p>
      {replacing && (
        <Confirm
          title="Replace all prebuilt workspaces?"
          action="Replace"
          onConfirm={() =>
            send("POST templates/{template}/prebuilds/invalidate", { template: t.id }).finally(() => void refetch())
          }
          onClose={() => replace(false)}
        >
          The server deletes those that exist and builds new ones, for example with a newer image. Until they are ready,
          users wait for a build. Workspaces that users have already stay.
        </Confirm>
      )}
    </Card>
  );
}
