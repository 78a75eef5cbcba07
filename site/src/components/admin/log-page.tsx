// What the pages of the audit log and the connection log share: a search with filters, pages of rows, and an export.
import { type UseQueryResult } from "@tanstack/react-query";
import { Bookmark, Download, X } from "lucide-react";
import { lazy, type ReactNode, Suspense, useState } from "react";
import { useLocation, useSearch } from "wouter";
import { address } from "~/api/client";
import { logPageSize } from "~/api/queries";
import { Button, buttonClass } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { SearchInput, Select } from "~/components/ui/form";
import { Page } from "~/components/ui/page";
import { Pager } from "~/components/ui/pager";
import { Pending } from "~/components/ui/pending";
import { plural, words } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { chipsOf, valueOf, withTerm } from "~/lib/log-filters";

const SavedSearches = lazy(() => import("~/components/ui/saved-searches"));

// useLogSearch keeps the search and the page in the address, so that a link shows the same rows.
export function useLogSearch() {
  const [path, go] = useLocation();
  const params = new URLSearchParams(useSearch());
  const q = params.get("q") ?? "";
  const page = Math.max(0, Math.trunc(Number(params.get("page") ?? 0)) || 0);
  const set = (next: string, to = 0) => {
    const out = new URLSearchParams();
    if (next) out.set("q", next);
    if (to > 0) out.set("page", String(to));
    go(path + (out.size ? `?${out}` : ""), { replace: true });
  };
  return { q, page, set };
}

// LogFilter is one key of the search, with its values.
export interface LogFilter {
  key: string;
  label: string;
  options: [value: string, text: string][]; // "" is the first
}

interface LogPageProps {
  title: string;
  what: string; // one row
  whats: string; // several
  example: string;
  filters: LogFilter[];
  of: "audit" | "connectionlog";
  search: ReturnType<typeof useLogSearch>;
  query: UseQueryResult<{ count: number; count_cap: number }>;
  rows: number; // shown
  children: ReactNode;
}

export function LogPage({ title, what, whats, example, filters, of, search, query, rows, children }: LogPageProps) {
  useTitle(title);
  const [text, setText] = useState(search.q);
  const [applied, setApplied] = useState(search.q);
  const [saving, setSaving] = useState(false);
  if (applied !== search.q) {
    setApplied(search.q);
    setText(search.q);
  }
  const isShown = (key: string, value: string) =>
    filters.some((f) => f.key === key && f.options.some(([v]) => v === value));
  const chips = chipsOf(search.q, isShown);
  const data = query.data;
  const total =
    data &&
    (data.count >= data.count_cap ? `more than ${data.count_cap - 1} ${whats}` : plural(data.count, what, whats));
  return (
    <Page
      title={title}
      subtitle={total}
      actions={
        <>
          <DocsLink to="audit">Searches and fields</DocsLink>
          <Button onClick={() => setSaving(true)}>
            <Bookmark /> Saved views
          </Button>
          <a className={buttonClass()} href={address(`GET ${of}/export`, { query: { q: search.q } })} download>
            <Download /> Export
          </a>
        </>
      }
    >
      <form
        onSubmit={(e) => {
          e.preventDefault();
          search.set(text.trim());
        }}
        className="flex gap-2"
      >
        <div className="min-w-0 flex-1">
          <SearchInput
            label={`Search the ${title.toLowerCase()}`}
            placeholder={example}
            value={text}
            onChange={setText}
            className="max-w-full"
          />
        </div>
        <Button type="submit">Search</Button>
      </form>
      <div role="group" aria-label="Filters" className="flex flex-wrap items-center gap-2">
        {filters.map((f) => {
          const value = valueOf(search.q, f.key);
          return (
            <Select
              key={f.key}
              aria-label={f.label}
              className="w-auto! max-sm:shrink-0 max-sm:grow max-sm:basis-36"
              value={isShown(f.key, value) ? value : ""}
              onChange={(e) => search.set(withTerm(text.trim(), f.key, e.target.value))}
            >
              {f.options.map(([v, label]) => (
                <option key={v} value={v}>
                  {label}
                </option>
              ))}
            </Select>
          );
        })}
        {chips.map((c) => (
          <Button key={`${c.key}:${c.value}`} small onClick={() => search.set(c.without)}>
            <span className="max-w-60 truncate">
              <span className="text-muted">{words(c.key)}:</span> {c.value}
            </span>
            <X aria-label="remove" />
          </Button>
        ))}
        {search.q && (
          <Button onClick={() => search.set("")}>
            <X /> Clear filters
          </Button>
        )}
      </div>
      {saving && (
        <Suspense>
          <SavedSearches page={of} search={search.q} onSearch={search.set} onClose={() => setSaving(false)} />
        </Suspense>
      )}
      <Pending query={query} what={whats} />
      {data && (
        <Card flush>
          {rows === 0 ? (
            <Empty title={`No ${whats} found`}>{search.q && "Change the search to see more."}</Empty>
          ) : (
            children
          )}
        </Card>
      )}
      {data && (
        <Pager
          page={search.page}
          size={logPageSize}
          rows={rows}
          // Rows beyond the cap are not counted: there may be more as long as pages are full.
          count={data.count < data.count_cap || rows < logPageSize ? data.count : Infinity}
          back="Newer"
          forth="Older"
          onPage={(page) => search.set(search.q, page)}
        />
      )}
    </Page>
  );
}
