import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { queries } from "~/api/queries";
import type { ConnectionLog as Connection } from "~/api/types";
import { LogPage, useLogSearch } from "~/components/admin/log-page";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { mono, Table } from "~/components/ui/table";
import { bytes, duration } from "~/lib/format";
import { useNow } from "~/lib/hooks";
import { periodsOf } from "~/lib/log-filters";
import { paths } from "~/lib/path";

const types: [string, string][] = [
  ["", "All ways"],
  ["ssh", "SSH and files"],
  ["vscode", "VS Code"],
  ["jetbrains", "JetBrains"],
  ["reconnecting_pty", "Terminals"],
  ["workspace_app", "Apps"],
  ["port_forwarding", "Ports"],
];

const statuses: [string, string][] = [
  ["", "All states"],
  ["ongoing", "Open"],
  ["completed", "Ended"],
  ["refused", "Refused"],
];

// What was done with files in the browser: before and after the name of the workspace.
const files: Record<string, [did: string, could: string, what: string]> = {
  "files list": ["listed", "list", "files of"],
  "files download": ["downloaded", "download", "files of"],
  "files upload": ["uploaded", "upload", "files to"],
  "files change": ["changed", "change", "files of"],
};

// deedOf says what a user did to a workspace, or could not do: the words before its name, and those after it.
function deedOf(r: Connection): [before: string, after: string] {
  const file = files[r.slug_or_port ?? ""];
  const verb = (did: string, could: string) => (r.refused ? `could not ${could}` : did);
  const connect = verb("connected to", "connect to");
  const opened = verb("opened", "open");
  if (file) return [`${verb(file[0], file[1])} ${file[2]}`, ""];
  switch (r.type) {
    case "ssh":
      return [connect, " over SSH"];
    case "vscode":
      return [connect, " with VS Code"];
    case "jetbrains":
      return [connect, " with JetBrains"];
    case "reconnecting_pty":
      return [`${opened} a terminal in`, ""];
    case "workspace_app":
      return [`${opened} the app ${r.slug_or_port ?? ""} of`, ""];
    case "port_forwarding":
      return [`${opened} port ${r.slug_or_port ?? ""} of`, ""];
  }
  return [connect, ` by ${r.type}`];
}

export default function ConnectionLog() {
  const search = useLogSearch();
  const query = useQuery({ ...queries.connectionLog(search.q, search.page), placeholderData: keepPreviousData });
  const rows = query.data?.connection_logs ?? [];
  const periods = periodsOf(useNow(60_000));
  return (
    <LogPage
      title="Connection log"
      what="connection"
      whats="connections"
      example="workspace_owner:ada type:ssh status:ongoing"
      filters={[
        { key: "type", label: "Way", options: types },
        { key: "status", label: "State", options: statuses },
        { key: "connected_after", label: "Time", options: periods },
      ]}
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
          { name: "What", className: "w-full", cell: (r) => <Deed row={r} /> },
          {
            name: "Path",
            className: "whitespace-nowrap",
            cell: (r) => (r.region ? `${r.path} by ${r.region}` : r.path),
          },
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

function Deed({ row: r }: { row: Connection }) {
  const [before, after] = deedOf(r);
  return (
    <>
      <span className="font-medium">{r.username || "Someone who was not signed in"}</span> {before}{" "}
      <Link href={paths.workspace(r.workspace_owner_username, r.workspace_name)} className="hover:underline">
        {r.workspace_owner_username}/{r.workspace_name}
        {r.agent_name && <span className="text-muted">.{r.agent_name}</span>}
      </Link>
      {after}
      {r.refused && r.disconnect_reason ? <span className="text-muted">: {r.disconnect_reason}</span> : null}
    </>
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
