// How many prebuilt workspaces a template has, by preset, and what keeps the server from having more.
import { useQuery } from "@tanstack/react-query";
import { queries } from "~/api/queries";
import type { Template } from "~/api/types";
import { DocsLink } from "./docs-link";
import { Table } from "./table";
import { Card } from "./ui";

export default function TemplatePrebuilds({ template: t }: { template: Template }) {
  const { data } = useQuery(queries.templatePrebuilds(t.id));
  if (!data?.length) return null;
  return (
    <Card title="Prebuilt workspaces" flush>
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
    </Card>
  );
}
