// What a template version contains, apart from its files.
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { queries } from "~/api/queries";
import { Badge } from "~/components/ui/badge";
import { Card } from "~/components/ui/card";
import { Empty } from "~/components/ui/empty";
import { ErrorNote } from "~/components/ui/error-note";
import { Icon } from "~/components/ui/icon";
import { Loading } from "~/components/ui/loading";
import { mono, Table } from "~/components/ui/table";

const Markdown = lazy(() => import("~/components/ui/markdown"));

export function Readme({ text }: { text: string }) {
  if (text.trim() === "") return <p className="text-muted">This template has no README.</p>;
  return (
    <Suspense fallback={<Loading what="README" />}>
      <Markdown text={text} />
    </Suspense>
  );
}

export function VersionResources({ id }: { id: string }) {
  const resources = useQuery(queries.versionResources(id));
  if (resources.error) return <ErrorNote error={resources.error} />;
  if (!resources.data) return <Loading what="resources" />;
  const started = resources.data.filter((r) => r.workspace_transition === "start");
  const kept = new Set(
    resources.data.filter((r) => r.workspace_transition === "stop").map((r) => `${r.type}.${r.name}`),
  );
  if (started.length === 0) return <Empty title="This version creates no resources" />;
  return (
    <Table
      label="Resources"
      rows={started}
      id={(r) => r.id}
      columns={[
        {
          name: "Resource",
          cell: (r) => (
            <span className="flex items-center gap-2">
              <Icon src={r.icon} name={r.type} /> {r.name}
            </span>
          ),
        },
        { name: "Type", cell: (r) => r.type, className: mono },
        {
          name: "Agents",
          cell: (r) =>
            (r.agents ?? []).map((a) => (
              <Badge key={a.id} className="mr-1">
                {a.name} · {a.operating_system}/{a.architecture}
              </Badge>
            )),
        },
        {
          name: "While stopped",
          cell: (r) => (kept.has(`${r.type}.${r.name}`) ? "Kept" : <span className="text-muted">Removed</span>),
        },
      ]}
    />
  );
}

export function VersionParameters({ id }: { id: string }) {
  const parameters = useQuery(queries.parameters(id));
  if (!parameters.data || parameters.data.length === 0) return null;
  return (
    <Card title="Parameters" flush>
      <Table
        label="Parameters"
        rows={parameters.data}
        id={(p) => p.name}
        columns={[
          {
            name: "Name",
            cell: (p) => (
              <>
                {p.display_name || p.name}
                <span className="block text-[13px] text-muted">{p.description_plaintext || p.description}</span>
              </>
            ),
          },
          { name: "Kind", cell: (p) => p.type, className: mono },
          {
            name: "Default",
            cell: (p) => (p.required ? <span className="text-muted">None</span> : p.default_value || "–"),
            className: `max-w-96 truncate ${mono}`,
          },
          {
            name: "Limits",
            cell: (p) =>
              p.mutable && !p.ephemeral ? null : (
                <>
                  {!p.mutable && <Badge>cannot be changed later</Badge>} {p.ephemeral && <Badge>one build only</Badge>}
                </>
              ),
          },
        ]}
      />
    </Card>
  );
}

export function VersionVariables({ id }: { id: string }) {
  const variables = useQuery(queries.variables(id));
  if (!variables.data || variables.data.length === 0) return null;
  return (
    <Card title="Variables" flush>
      <Table
        label="Variables"
        rows={variables.data}
        id={(v) => v.name}
        columns={[
          {
            name: "Name",
            cell: (v) => (
              <>
                <code>{v.name}</code>
                <span className="block text-[13px] text-muted">{v.description}</span>
              </>
            ),
          },
          { name: "Type", cell: (v) => v.type, className: mono },
          {
            name: "Value",
            cell: (v) => (v.sensitive ? <Badge>secret</Badge> : v.value || v.default_value || "–"),
            className: `max-w-md truncate ${mono}`,
          },
        ]}
      />
    </Card>
  );
}
