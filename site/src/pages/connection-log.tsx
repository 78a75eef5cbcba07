import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { queries } from "~/api/queries";
import type { ConnectionLog as Connection } from "~/api/types";
import { LogPage, useLogSearch } from "~/components/admin/log-page";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { mono, Table } from "~/components/ui/table";
import { bytes, duration } from "~/lib/format";
import { paths } from "~/lib/path";

const types: Record<string, string> = {
  ssh: "SSH",
  vscode: "VS Code",
  jetbrains: "JetBrains",
  reconnecting_pty: "Terminal",
  workspace_app: "App",
  port_forwarding: "Port",
};

export default function ConnectionLog() {
  const search = useLogSearch();
  const query = useQuery({ ...queries.connectionLog(search.q, search.page), placeholderData: keepPreviousData });
  const rows = query.data?.connection_logs ?? [];
  return (
    <LogPage
      title="Connection log"
      what="connection"
      whats="connections"
      example="workspace_owner:ada type:ssh status:ongoing"
      of="connectionlog"
      search={search}
      query={query}
      rows={rows.length}
    >
      <Table
        label="Connection log"
        rows={rows}
        id={(r) => r.id}
        columns={[
          { name: "User", cell: (r) => <span className="font-medium">{r.username || "not signed in"}</span> },
          {
            name: "Workspace",
            cell: (r) => (
              <Link href={paths.workspace(r.workspace_owner_username, r.workspace_name)} className="hover:underline">
                {r.workspace_owner_username}/{r.workspace_name}
                <span className="text-muted">.{r.agent_name}</span>
              </Link>
            ),
          },
          {
            name: "By",
            cell: (r) => `${types[r.type] ?? r.type}${r.slug_or_port ? ` ${r.slug_or_port}` : ""}`,
          },
          { name: "Path", cell: (r) => (r.region ? `${r.path} by ${r.region}` : r.path) },
          { name: "Address", className: mono, cell: (r) => r.ip },
          {
            name: "Traffic",
            className: "whitespace-nowrap",
            cell: (r) => (r.disconnect_time && !r.refused ? `${bytes(r.bytes_in)} in, ${bytes(r.bytes_out)} out` : ""),
          },
          { name: "Duration", cell: (r) => <Lasted row={r} /> },
          { name: "When", className: "whitespace-nowrap", cell: (r) => <Ago at={r.connect_time} /> },
        ]}
      />
    </LogPage>
  );
}

function Lasted({ row }: { row: Connection }) {
  if (row.refused)
    return (
      <span title={row.disconnect_reason}>
        <Badge tone="bad">{row.refused > 1 ? `refused ${row.refused} times` : "refused"}</Badge>
      </span>
    );
  if (!row.disconnect_time) return <Badge tone="ok">open</Badge>;
  const lasted = Date.parse(row.disconnect_time) - Date.parse(row.connect_time);
  return <span title={row.disconnect_reason}>{duration(lasted)}</span>;
}
