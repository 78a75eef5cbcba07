// What workspaces cost a day, by template, group and user: searched, sorted, and complete.
import { useState } from "react";
import { Link } from "wouter";
import type { CostOf, OverviewCosts } from "~/api/types";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { SearchInput, Select } from "~/components/ui/form";
import { Pager } from "~/components/ui/pager";
import { Table } from "~/components/ui/table";
import { plural } from "~/lib/format";
import { paths } from "~/lib/path";

type By = "templates" | "groups" | "users";
type Order = "name" | "workspaces" | "running" | "daily_cost";

const kinds: { by: By; name: string; one: string }[] = [
  { by: "templates", name: "Template", one: "template" },
  { by: "groups", name: "Group", one: "group" },
  { by: "users", name: "User", one: "user" },
];

const rowsPerPage = 25;

const number = (n: number) => n.toLocaleString("en");

const matches = (c: CostOf, words: string[]) => {
  const text = `${c.name} ${c.display_name} ${c.organization_name}`.toLowerCase();
  return words.every((w) => text.includes(w));
};

// compare orders rows as people expect: names from A to Z, numbers from the largest. sort keeps the server's order of
// equal ones.
const compare = (order: Order) => (a: CostOf, b: CostOf) =>
  order === "name" ? a.name.localeCompare(b.name) : b[order] - a[order];

export function Costs({ of }: { of: OverviewCosts }) {
  const [by, setBy] = useState<By>("templates");
  const [order, setOrder] = useState<Order>("daily_cost");
  const [search, setSearch] = useState("");
  const [page, setPage] = useState(0);
  const kind = kinds.find((k) => k.by === by)!;
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = of[by].filter((c) => matches(c, words)).toSorted(compare(order));
  // A page that is no more, because workspaces were deleted, is the last one.
  const shown = Math.min(page, Math.max(0, Math.ceil(found.length / rowsPerPage) - 1));
  const rows = found.slice(shown * rowsPerPage, (shown + 1) * rowsPerPage);
  const sorted = (o: Order) => ({
    on: order === o,
    by: () => {
      setOrder(o);
      setPage(0);
    },
  });
  return (
    <>
      <Card title={`Costs: ${number(of.daily_cost)} credits a day`} flush>
        <div className="flex flex-wrap items-center gap-3 px-4 py-3">
          <div className="w-40">
            <Select
              aria-label="Costs by"
              value={by}
              onChange={(e) => {
                setBy(e.currentTarget.value as By);
                setPage(0);
              }}
            >
              {kinds.map((k) => (
                <option key={k.by} value={k.by}>
                  By {k.one}
                </option>
              ))}
            </Select>
          </div>
          <SearchInput
            label="Search costs"
            placeholder={`Search ${by}`}
            value={search}
            onChange={(text) => {
              setSearch(text);
              setPage(0);
            }}
          />
          <span className="text-[13px] text-muted">
            {plural(found.length, kind.one)}, counted as <DocsLink to="groups#quotas">quotas</DocsLink> count
            {by === "groups" && "; a user in several groups counts in each"}
          </span>
        </div>
        {rows.length === 0 ? (
          <Empty title={words.length > 0 ? "Nothing found" : "No workspaces"}>
            {words.length > 0 && "Search for another word."}
          </Empty>
        ) : (
          <Table
            label={`Costs by ${kind.one}`}
            rows={rows}
            id={(c) => c.id}
            columns={[
              { name: kind.name, sort: sorted("name"), cell: (c) => <Name of={c} by={by} />, className: "break-all" },
              ...(by === "users" ? [] : [{ name: "Organization", cell: (c: CostOf) => c.organization_name }]),
              { name: "Workspaces", sort: sorted("workspaces"), cell: (c) => number(c.workspaces), className: digits },
              { name: "Running", sort: sorted("running"), cell: (c) => number(c.running), className: digits },
              {
                name: "Credits a day",
                sort: sorted("daily_cost"),
                cell: (c) => number(c.daily_cost),
                className: digits,
              },
            ]}
          />
        )}
      </Card>
      <Pager page={shown} size={rowsPerPage} rows={rows.length} count={found.length} onPage={setPage} />
    </>
  );
}

const digits = "tabular-nums";

// Name links a template, a group, or the workspaces of a user.
function Name({ of: c, by }: { of: CostOf; by: By }) {
  const to = {
    templates: paths.template(c.id),
    groups: paths.group(c.organization_name, c.id),
    users: `${paths.workspaces}?${new URLSearchParams({ q: `owner:${c.name}` })}`,
  }[by];
  return (
    <>
      <Link className="font-medium hover:underline" href={to}>
        {c.name}
      </Link>
      {c.display_name && c.display_name !== c.name && <span className="text-muted"> {c.display_name}</span>}
    </>
  );
}
