// What a template's version holds, beside its files.
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { queries } from "~/api/queries";
import { Badge, Card, Empty, ErrorNote, Icon, Loading, Table, td } from "./ui";

const Markdown = lazy(() => import("./markdown"));

export function Readme({ text }: { text: string }) {
  if (text.trim() === "") return <p className="text-muted">This template has no README.md.</p>;
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
  if (started.length === 0) return <Empty title="This version makes nothing" />;
  return (
    <Table label="Resources" head={["Resource", "Type", "Agents", "While stopped"]}>
      {started.map((r) => (
        <tr key={r.id}>
          <td className={td}>
            <span className="flex items-center gap-2">
              <Icon src={r.icon} name={r.type} /> {r.name}
            </span>
          </td>
          <td className={`${td} font-mono text-[13px]`}>{r.type}</td>
          <td className={td}>
            {(r.agents ?? []).map((a) => (
              <Badge key={a.id} className="mr-1">
                {a.name} · {a.operating_system}/{a.architecture}
              </Badge>
            ))}
          </td>
          <td className={td}>
            {kept.has(`${r.type}.${r.name}`) ? "is kept" : <span className="text-muted">is removed</span>}
          </td>
        </tr>
      ))}
    </Table>
  );
}

export function VersionParameters({ id }: { id: string }) {
  const parameters = useQuery(queries.parameters(id));
  if (!parameters.data || parameters.data.length === 0) return null;
  return (
    <Card title="Parameters" flush>
      <Table label="Parameters" head={["Name", "Kind", "Default", ""]}>
        {parameters.data.map((p) => (
          <tr key={p.name}>
            <td className={td}>
              {p.display_name || p.name}
              <span className="block text-[13px] text-muted">{p.description_plaintext || p.description}</span>
            </td>
            <td className={`${td} font-mono text-[13px]`}>{p.type}</td>
            <td className={`${td} max-w-48 truncate font-mono text-[13px]`}>
              {p.required ? <span className="text-muted">none</span> : p.default_value || "–"}
            </td>
            <td className={td}>
              {!p.mutable && <Badge>cannot be changed later</Badge>} {p.ephemeral && <Badge>for one build</Badge>}
            </td>
          </tr>
        ))}
      </Table>
    </Card>
  );
}

export function VersionVariables({ id }: { id: string }) {
  const variables = useQuery(queries.variables(id));
  if (!variables.data || variables.data.length === 0) return null;
  return (
    <Card title="Variables" flush>
      <Table label="Variables" head={["Name", "Type", "Value"]}>
        {variables.data.map((v) => (
          <tr key={v.name}>
            <td className={td}>
              <code>{v.name}</code>
              <span className="block text-[13px] text-muted">{v.description}</span>
            </td>
            <td className={`${td} font-mono text-[13px]`}>{v.type}</td>
            <td className={`${td} max-w-72 truncate font-mono text-[13px]`}>
              {v.sensitive ? <Badge>secret</Badge> : v.value || v.default_value || "–"}
            </td>
          </tr>
        ))}
      </Table>
    </Card>
  );
}
