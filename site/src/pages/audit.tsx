import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight, ListFilter } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { queries } from "~/api/queries";
import type { AuditLog } from "~/api/types";
import { LogPage, useLogSearch } from "~/components/admin/log-page";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Facts } from "~/components/ui/facts";
import { IconButton } from "~/components/ui/icon-button";
import { mono, Table } from "~/components/ui/table";
import { fullTime, words } from "~/lib/format";
import { useNow } from "~/lib/hooks";
import { shown } from "~/lib/audit-values";
import { periodsOf, withTerm } from "~/lib/log-filters";

const actions: [string, string][] = [
  ["", "All actions"],
  ["create", "Created"],
  ["write", "Changed"],
  ["delete", "Deleted"],
  ["start", "Started"],
  ["stop", "Stopped"],
  ["cancel", "Canceled"],
  ["transfer", "Transferred"],
  ["login", "Signed in"],
  ["logout", "Signed out"],
];

// What readers look for most. The search takes the others.
const kinds: [string, string][] = [
  ["", "All objects"],
  ["user", "Users"],
  ["workspace", "Workspaces"],
  ["workspace_build", "Builds"],
  ["template", "Templates"],
  ["template_version", "Template versions"],
  ["group", "Groups"],
  ["organization", "Organizations"],
  ["organization_member", "Members"],
  ["api_key", "Tokens and sign-ins"],
  ["user_ssh_key", "SSH keys"],
  ["user_device", "Devices"],
  ["user_secret", "Secrets"],
  ["provisioner_key", "Provisioner keys"],
  ["webhook", "Webhooks"],
];

export default function Audit() {
  const search = useLogSearch();
  const query = useQuery({ ...queries.audit(search.q, search.page), placeholderData: keepPreviousData });
  const rows = query.data?.audit_logs ?? [];
  const [open, setOpen] = useState("");
  const periods = periodsOf(useNow(60_000));
  return (
    <LogPage
      title="Audit log"
      what="entry"
      whats="entries"
      example="action:delete username:ada date_from:2030-01-01"
      filters={[
        { key: "action", label: "Action", options: actions },
        { key: "resource_type", label: "Object", options: kinds },
        { key: "date_from", label: "Time", options: periods },
      ]}
      of="audit"
      search={search}
      query={query}
      rows={rows.length}
    >
      <Table
        label="Audit log"
        rows={rows}
        id={(r) => r.id}
        columns={[
          {
            name: "What",
            className: "w-full",
            cell: (r) => (
              <>
                <span className="font-medium">
                  {r.resource_link && !r.is_deleted ? (
                    <Link href={r.resource_link} className="hover:underline">
                      {r.description}
                    </Link>
                  ) : (
                    r.description
                  )}
                </span>
                {open === r.id && <Details row={r} q={search.q} onSearch={search.set} />}
              </>
            ),
          },
          {
            name: "Status",
            cell: (r) =>
              r.status_code >= 400 && (
                <Badge tone="bad" title={String(r.status_code)}>
                  {failures[r.status_code] ?? "refused"}
                </Badge>
              ),
          },
          { name: "Address", className: mono, cell: (r) => r.ip },
          { name: "When", className: "whitespace-nowrap", cell: (r) => <Ago at={r.time} /> },
          {
            name: "Actions",
            action: true,
            cell: (r) => (
              <IconButton
                label={`Details of: ${r.description}`}
                aria-expanded={open === r.id}
                onClick={() => setOpen(open === r.id ? "" : r.id)}
              >
                {open === r.id ? <ChevronDown /> : <ChevronRight />}
              </IconButton>
            ),
          },
        ]}
      />
    </LogPage>
  );
}

const failures: Record<number, string> = { 409: "canceled", 500: "failed" };

interface DetailsProps {
  row: AuditLog;
  q: string; // the search that found it
  onSearch: (q: string) => void;
}

function Details({ row, q, onSearch }: DetailsProps) {
  const diff = Object.entries(row.diff);
  const more = [
    row.user && { key: "username", value: row.user.username, label: `By ${row.user.username}` },
    row.resource_target && {
      key: "resource_target",
      value: row.resource_target,
      label: `About ${row.resource_target.length > 40 ? "this object" : row.resource_target}`,
    },
  ].filter((m) => m !== null && m !== "");
  return (
    <div className="mt-2 space-y-3 text-[13px]">
      {diff.length > 0 && (
        <table className="w-full border-collapse" aria-label="Difference">
          <tbody>
            {diff.map(([field, d]) => (
              <tr key={field} className="align-top">
                <th scope="row" className="py-0.5 pr-3 text-left font-normal text-muted">
                  {words(field)}
                </th>
                {d.secret ? (
                  <td className="text-muted">changed, and not shown</td>
                ) : (
                  <td className="break-all">
                    <del className="text-bad">{shown(d.old, row.names)}</del> →{" "}
                    <ins className="text-ok no-underline">{shown(d.new, row.names)}</ins>
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <Facts
        of={[
          ["Time", fullTime(row.time)],
          ["Actor", row.actor],
          ["Action", row.action],
          ["Object", `${words(row.resource_type)} ${row.resource_target}`],
          ["Organization", row.organization?.display_name || row.organization?.name || "none"],
          ["Program", row.user_agent || "none"],
          ["Request", row.request_id.startsWith("00000000-") ? "none" : row.request_id],
        ]}
      />
      <div role="group" aria-label="Show more entries" className="flex flex-wrap gap-2">
        {more.map((m) => (
          <Button key={m.key} small onClick={() => onSearch(withTerm(q, m.key, m.value))}>
            <ListFilter /> {m.label}
          </Button>
        ))}
      </div>
    </div>
  );
}
