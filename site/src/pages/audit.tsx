import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { ChevronDown, ChevronRight } from "lucide-react";
import { useState } from "react";
import { Link } from "wouter";
import { queries } from "~/api/queries";
import type { AuditLog } from "~/api/types";
import { LogPage, useLogSearch } from "~/components/admin/log-page";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Facts } from "~/components/ui/facts";
import { IconButton } from "~/components/ui/icon-button";
import { mono, Table } from "~/components/ui/table";
import { fullTime, words } from "~/lib/format";

export default function Audit() {
  const search = useLogSearch();
  const query = useQuery({ ...queries.audit(search.q, search.page), placeholderData: keepPreviousData });
  const rows = query.data?.audit_logs ?? [];
  const [open, setOpen] = useState("");
  return (
    <LogPage
      title="Audit log"
      what="entry"
      whats="entries"
      example="action:delete username:ada date_from:2030-01-01"
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
                {open === r.id && <Details row={r} />}
              </>
            ),
          },
          {
            name: "Status",
            cell: (r) => (
              <Badge tone={r.status_code < 400 ? "ok" : "bad"} title={String(r.status_code)}>
                {r.status_code < 400 ? "done" : r.status_code === 500 ? "failed" : "refused"}
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

function Details({ row }: { row: AuditLog }) {
  const diff = Object.entries(row.diff);
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
                    <del className="text-bad">{shown(d.old)}</del> →{" "}
                    <ins className="text-ok no-underline">{shown(d.new)}</ins>
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
    </div>
  );
}

function shown(value: unknown): string {
  if (value === null || value === undefined || value === "") return "nothing";
  return typeof value === "string" ? value : JSON.stringify(value);
}
