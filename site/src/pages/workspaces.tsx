import { keepPreviousData, useQueries, useQuery } from "@tanstack/react-query";
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { Plus, Search, Star, Users } from "lucide-react";
import {
  type CSSProperties,
  lazy,
  memo,
  Suspense,
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import { Link, useLocation, useSearch } from "wouter";
import { firstSearch, listed, pageSize, queries } from "~/api/queries";
import type { MeshPeer, Workspace } from "~/api/types";
import { PathMark } from "~/components/agent/path-mark";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { cx } from "~/components/ui/cx";
import { Empty } from "~/components/ui/empty";
import { Icon } from "~/components/ui/icon";
import { inputClass, Select } from "~/components/ui/input";
import { LinkButton } from "~/components/ui/link-button";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import { agentsOf, noteOf, WorkspaceBadge } from "~/components/ui/status";
import { isOwner, mayEditTemplates, useMe } from "~/components/ui/user";
import {
  ActionDialogs,
  ActionMenu,
  type ActionProps,
  PrimaryAction,
  useWorkspaceActions,
} from "~/components/workspace/actions";
import { RowApps } from "~/components/workspace/row-apps";
import { columns as allColumns, defaultColumns, tracks } from "~/lib/columns";
import { plural } from "~/lib/format";
import { useDebounced, useMedia, useTitle } from "~/lib/hooks";
import { pathOf, paths } from "~/lib/path";

const Onboarding = lazy(() => import("~/components/workspace/onboarding"));
const ListOptions = lazy(() => import("~/components/workspace/list-options"));
const BulkActions = lazy(() => import("~/components/workspace/bulk-actions"));

// A row's height, px. On narrow pages its parts are stacked.
const rowHeight = 56;
const narrowHeight = 92;

const filters = [
  { label: "All statuses", term: "" },
  { label: "Running", term: "status:running" },
  { label: "Stopped", term: "status:stopped" },
  { label: "Failed", term: "status:failed" },
  { label: "Outdated", term: "outdated:true" },
  { label: "Dormant", term: "dormant:true" },
];

// The server's orders, as people call them.
const orders: Record<string, string> = {
  "": "Running first",
  name: "Name",
  used: "Last used",
  created: "Newest",
  status: "Status",
  owner: "Owner",
  template: "Template",
};

// The searches by relation to the user. The last one lists all that the user can see.
const whose = [
  { label: "Mine", term: firstSearch },
  { label: "Shared with me", term: "shared_with_user:me" },
  { label: "Shared by me", term: "owner:me shared:true" },
  { label: "", term: "" },
];
const whoseTerms = /\b(owner|shared|shared_with_user):\S+/g;

export default function Workspaces() {
  useTitle("Workspaces");
  const me = useMe();
  const params = new URLSearchParams(useSearch());
  const [, navigate] = useLocation();
  const [search, setSearch] = useState(params.get("q") ?? firstSearch);
  const rested = useDebounced(search, 200);
  const wanted = params.get("sort") ?? "";
  const sort = Object.hasOwn(orders, wanted) ? wanted : "";
  const list = useQuery({ ...listed(rested, sort), placeholderData: keepPreviousData });
  const templates = useQuery(queries.templates());
  const [options, showOptions] = useState(false);
  const columns = useQuery(queries.preferences()).data?.workspace_columns ?? defaultColumns;
  const show = (text: string, order: string) =>
    navigate(`/workspaces?q=${encodeURIComponent(text)}${order && `&sort=${order}`}`, { replace: true });
  const change = (text: string) => {
    setSearch(text);
    show(text, sort);
  };
  const replace = (pattern: RegExp, term: string) =>
    change(`${search.replace(pattern, " ")} ${term}`.replace(/\s+/g, " ").trim());
  const term = filters.find((f) => f.term !== "" && search.includes(f.term))?.term ?? "";
  const ofWhom = (search.match(whoseTerms) ?? []).toSorted().join(" ");
  const all = list.data?.workspaces ?? [];
  const plain = /^(owner:me)?$/.test(rested.trim());
  const starting = list.data && plain && list.data.count < (rested.trim() === firstSearch ? 2 : 1);
  return (
    <Page
      title="Workspaces"
      subtitle={list.data ? plural(list.data.count, "workspace") : undefined}
      actions={
        <LinkButton look="primary" href={paths.templates}>
          <Plus /> New workspace
        </LinkButton>
      }
    >
      <div className="flex flex-wrap gap-2">
        <label className="relative min-w-0 flex-1 basis-44 max-sm:basis-full">
          <span className="sr-only">Search workspaces</span>
          <Search className="absolute top-2 left-2.5 size-4 text-muted" aria-hidden />
          <input
            type="search"
            value={search}
            onChange={(e) => change(e.target.value)}
            spellCheck={false}
            placeholder="owner:me status:running template:docker name"
            className={cx(inputClass, "h-8 pl-8 font-mono text-[13px]")}
          />
        </label>
        <div role="group" aria-label="Whose" className="flex flex-wrap gap-1">
          {whose.map(({ label, term }) => (
            <Button
              key={label}
              aria-pressed={term === ofWhom}
              className="aria-pressed:border-accent aria-pressed:bg-accent-soft aria-pressed:text-accent"
              onClick={() => replace(whoseTerms, term)}
            >
              {label || (isOwner(me) ? "Everyone's" : "All")}
            </Button>
          ))}
        </div>
        <Select
          aria-label="Status"
          className="w-auto! max-sm:flex-1"
          value={term}
          onChange={(e) => replace(/\b(status|outdated|dormant):\S+/g, e.target.value)}
        >
          {filters.map((f) => (
            <option key={f.label} value={f.term}>
              {f.label}
            </option>
          ))}
        </Select>
        <Select
          aria-label="Sort"
          className="w-auto! max-sm:flex-1"
          value={sort}
          onChange={(e) => show(search, e.target.value)}
        >
          {Object.entries(orders).map(([key, label]) => (
            <option key={key} value={key}>
              {label}
            </option>
          ))}
        </Select>
        <Button onClick={() => showOptions(true)}>View…</Button>
        {options && (
          <Suspense>
            <ListOptions
              search={search.trim()}
              columns={columns}
              onSearch={change}
              onClose={() => showOptions(false)}
            />
          </Suspense>
        )}
      </div>
      <Pending query={list} what="workspaces" />
      {starting && (
        <Suspense>
          <Onboarding workspaces={list.data.count} templates={templates.data?.length} editor={mayEditTemplates(me)} />
        </Suspense>
      )}
      {list.data && all.length === 0 && !plain && (
        <Card>
          {rested.trim() === "shared_with_user:me" ? (
            <Empty icon={<Users />} title="Nothing is shared with you">
              Owners share a workspace on its Sharing tab.
            </Empty>
          ) : rested.trim() === "owner:me shared:true" ? (
            <Empty icon={<Users />} title="You share no workspace">
              Open one of your workspaces and choose Sharing.
            </Empty>
          ) : (
            <Empty icon={<Search />} title="No results">
              No workspaces match <code>{rested}</code>.
            </Empty>
          )}
        </Card>
      )}
      {all.length > 0 && (
        <List key={rested} head={all} count={list.data!.count} search={rested} columns={columns} sort={sort} />
      )}
    </Page>
  );
}

interface ListProps {
  head: Workspace[]; // the first page
  count: number; // of all pages
  search: string;
  columns: readonly string[];
  sort: string;
}

function List({ head, count, search, columns, sort }: ListProps) {
  const ref = useRef<HTMLUListElement>(null);
  const narrow = useMedia("(max-width: 47.99rem)");
  const height = narrow ? narrowHeight : rowHeight;
  const [above, setAbove] = useState(0); // how far the list is below the top of the page, px
  useLayoutEffect(() => setAbove(ref.current!.getBoundingClientRect().top + window.scrollY), [height, count]);
  const virtual = useWindowVirtualizer({ count, estimateSize: () => height, overscan: 20, scrollMargin: above });
  useEffect(() => virtual.measure(), [virtual, height]);
  const rows = virtual.getVirtualItems();
  const firstPage = Math.floor((rows[0]?.index ?? 0) / pageSize);
  const lastPage = Math.floor((rows.at(-1)?.index ?? 0) / pageSize);
  const pages = Array.from({ length: lastPage - firstPage + 1 }, (_, i) => firstPage + i);
  const asked = useQueries({
    queries: pages.map((page) => ({ ...listed(search, sort, page), enabled: page > 0 })),
  });
  const mesh = useQuery(queries.mesh()); // refetched when an agent or a workspace changes
  const actions = useWorkspaceActions();
  const peers = useMemo(() => new Map(mesh.data?.peers.map((p) => [p.id, p])), [mesh.data]);
  const whole = count <= pageSize;
  const at = (i: number): Workspace | undefined => {
    const page = Math.floor(i / pageSize);
    return (page === 0 ? head : asked[page - firstPage]?.data?.workspaces)?.[i % pageSize];
  };
  // The selected workspaces as they were when they were selected. Those of the first page are shown as they are now.
  const [chosen, choose] = useState<ReadonlyMap<string, Workspace>>(new Map());
  const selected = useMemo(() => {
    const now = new Map(head.map((w) => [w.id, w]));
    return [...chosen.values()].map((w) => now.get(w.id) ?? w);
  }, [chosen, head]);
  const select = useCallback(
    (w: Workspace, on: boolean) =>
      choose((old) => new Map(on ? [...old, [w.id, w]] : [...old].filter(([id]) => id !== w.id))),
    [],
  );
  const all = head.every((w) => chosen.has(w.id));
  return (
    <Card flush>
      <ActionDialogs actions={actions} />
      <div
        className={cx(
          "min-h-10 items-center gap-x-3 gap-y-2 border-b border-line px-4 py-1.5 text-[13px]",
          selected.length > 0 ? "flex flex-wrap" : rowClass,
        )}
        style={rowStyle(columns)}
      >
        <label className="flex items-center gap-3 text-muted">
          <input
            type="checkbox"
            className="shrink-0 accent-fill"
            checked={all}
            onChange={() => choose(all ? new Map() : new Map(head.map((w) => [w.id, w])))}
          />
          {selected.length > 0
            ? `${selected.length} selected`
            : whole
              ? "Select all"
              : `Select the first ${head.length}`}
        </label>
        {selected.length === 0 &&
          allColumns
            .filter((c) => columns.includes(c.key))
            .map((c) => (
              <span key={c.key} aria-hidden className={cx("hidden text-muted", c.wide ? "lg:block" : "md:block")}>
                {c.heading}
              </span>
            ))}
        {selected.length > 0 && (
          <div role="group" aria-label="Selected workspaces" className="flex flex-wrap gap-1">
            <Suspense>
              <BulkActions selected={selected} onDone={() => choose(new Map())} />
            </Suspense>
          </div>
        )}
      </div>
      <ul ref={ref} aria-label="Workspaces" className="relative" style={{ height: virtual.getTotalSize() }}>
        {rows.map(({ index: i, start }) => {
          const w = at(i);
          return (
            <li
              key={w?.id ?? i}
              aria-setsize={count}
              aria-posinset={i + 1}
              className="absolute inset-x-0 border-b border-line last:border-0"
              style={{ top: start - above, height }}
            >
              {w && (
                <Row
                  workspace={w}
                  peer={peers.get(agentsOf(w.latest_build)[0]?.id ?? "")}
                  columns={columns}
                  act={actions.act}
                  busy={actions.busy.has(w.id)}
                  selected={chosen.has(w.id)}
                  onSelect={select}
                />
              )}
            </li>
          );
        })}
      </ul>
    </Card>
  );
}

interface RowProps extends ActionProps {
  peer: MeshPeer | undefined;
  columns: readonly string[];
  selected: boolean;
  onSelect: (w: Workspace, on: boolean) => void;
}

// The headings and the rows have the same columns. A row has few of them where it is narrow.
const rowClass = "grid grid-cols-[1fr_auto] items-center gap-x-3 md:grid-cols-(--some) lg:grid-cols-(--all)";
const rowStyle = (columns: readonly string[]) =>
  ({ "--some": tracks(columns, false), "--all": tracks(columns, true) }) as CSSProperties;

const onWide = "hidden truncate text-[13px] text-muted lg:block";

const Row = memo(function Row({ workspace: w, peer, columns, act, busy, selected, onSelect }: RowProps) {
  const mine = useMe().id === w.owner_id;
  const reason = noteOf(w);
  const has = (column: string) => columns.includes(column);
  return (
    <div
      className={cx("h-full px-4", rowClass, selected ? "bg-accent-soft" : "hover:bg-raised/50")}
      style={rowStyle(columns)}
    >
      <div className="flex min-w-0 items-center gap-3">
        <input
          type="checkbox"
          className="shrink-0 accent-fill"
          aria-label={`Select ${w.owner_name}/${w.name}`}
          checked={selected}
          onChange={(e) => onSelect(w, e.target.checked)}
        />
        <Icon src={w.template_icon} name={w.template_name} className="size-7" />
        <div className="min-w-0">
          <div className="flex items-center gap-1.5">
            <Link href={pathOf(w)} title={w.name} className="truncate font-medium hover:underline">
              {w.name}
            </Link>
            {w.favorite && <Star className="size-3.5 shrink-0 fill-warn text-warn" role="img" aria-label="Favorite" />}
          </div>
          <div className="flex items-center gap-1.5 text-[13px] text-muted">
            <span className="truncate">
              {!mine && `${w.owner_name} · `}
              {w.template_display_name || w.template_name}
            </span>
            {w.shared && <Badge title="Other users have access">shared</Badge>}
            {w.outdated && (
              <Badge tone="warn" title="The template has a newer version">
                outdated
              </Badge>
            )}
          </div>
        </div>
      </div>
      {has("status") && (
        <div className="order-3 flex min-w-0 items-center gap-2 self-start md:order-none md:self-center">
          <WorkspaceBadge workspace={w} />
          <span className="line-clamp-2 text-[13px] break-words text-muted" title={reason}>
            {reason}
          </span>
        </div>
      )}
      {has("path") && (
        <div className="max-md:hidden">
          <PathMark build={w.latest_build} peer={peer} />
        </div>
      )}
      {has("version") && <div className={onWide}>{w.latest_build.template_version_name}</div>}
      {has("created") && (
        <div className={onWide}>
          <span className="sr-only">created </span>
          <Ago at={w.created_at} />
        </div>
      )}
      {has("used") && (
        <div className={onWide}>
          <span className="sr-only">used </span>
          <Ago at={w.last_used_at} />
        </div>
      )}
      {has("apps") && (
        <div
          className={cx(
            "order-4 -mt-1.5 flex items-center self-start max-md:justify-end",
            "md:order-none md:mt-0 md:-ml-1.5 md:self-center",
          )}
        >
          <RowApps workspace={w} />
        </div>
      )}
      <div className="flex items-center justify-end gap-1">
        <PrimaryAction workspace={w} act={act} busy={busy} small />
        <ActionMenu workspace={w} act={act} busy={busy} />
      </div>
    </div>
  );
});
