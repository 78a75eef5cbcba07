// The documentation of this version of the server.
import { ArrowLeft, ArrowRight, BookOpen } from "lucide-react";
import { useDeferredValue, useEffect, useMemo } from "react";
import { Link, useLocation, useSearch } from "wouter";
import { useLocationProperty } from "wouter/use-browser-location";
import { Card } from "~/components/ui/card";
import { Empty } from "~/components/ui/empty";
import { SearchInput } from "~/components/ui/form";
import { LinkButton } from "~/components/ui/link-button";
import Markdown, { headings } from "~/components/ui/markdown";
import { Page } from "~/components/ui/page";
import { docsPath, neighbors, pages, search, titleOf } from "~/lib/docs";
import { picture } from "~/lib/docs-pictures";
import { plural } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { decoded, paths } from "~/lib/path";
import { slug } from "~/lib/slug";

export default function Docs({ page }: { page: string }) {
  const [, go] = useLocation();
  const q = new URLSearchParams(useSearch()).get("q") ?? "";
  const hash = useLocationProperty(() => location.hash);
  const [, title = "", body = ""] = /^# (.*)\n([\s\S]*)$/.exec(pages.get(page) ?? "") ?? [];
  const searching = page === "" && q.trim() !== "";
  useTitle(title || "Documentation");
  useEffect(() => {
    const id = decoded(hash.slice(1));
    if (id) document.getElementById(id)?.scrollIntoView();
  }, [page, hash]);
  const find = (text: string) =>
    go(paths.docs() + (text && `?${new URLSearchParams({ q: text })}`), { replace: page === "" });
  return (
    <Page
      title={title ? title.replaceAll("`", "") : "Page not found"}
      actions={
        <>
          <SearchInput
            className="w-56!"
            label="Search the documentation"
            placeholder="Search"
            value={q}
            onChange={find}
          />
          {page && (
            <LinkButton href={paths.docs()}>
              <BookOpen /> All documentation
            </LinkButton>
          )}
        </>
      }
    >
      {searching ? <Hits of={q} /> : title ? <Text page={page} body={body} /> : <Missing page={page} />}
    </Page>
  );
}

function Text({ page, body }: { page: string; body: string }) {
  return (
    <>
      <div className="flex flex-col gap-4 lg:flex-row-reverse lg:items-start">
        <OnThisPage of={headings(body, 2)} />
        <Card className="min-w-0 flex-1">
          <Markdown
            text={body}
            resolve={(href) => (href.startsWith("#") ? href : docsPath(href, page))}
            picture={(href) => picture(href, page)}
          />
        </Card>
      </div>
      {page && <Neighbors of={page} />}
    </>
  );
}

const Missing = ({ page }: { page: string }) => (
  <Empty icon={<BookOpen />} title="This version has no such page">
    The documentation has no page {page}. Search for it, or look through all pages.
  </Empty>
);

// Hits lists the sections that answer a search.
function Hits({ of: text }: { of: string }) {
  const wanted = useDeferredValue(text);
  const hits = useMemo(() => search(wanted), [wanted]);
  if (hits.length === 0)
    return (
      <Empty icon={<BookOpen />} title="No results">
        No section has all of these words. Use fewer, or shorter ones.
      </Empty>
    );
  return (
    <Card>
      <p role="status" className="text-muted">
        {plural(hits.length, "section", "sections")}
      </p>
      <ul aria-label="Results" className="flex flex-col gap-3">
        {hits.map((hit) => (
          <li key={hit.to}>
            <Link href={hit.to} className="font-semibold text-accent hover:underline">
              {hit.heading ? `${hit.title}: ${hit.heading}` : hit.title}
            </Link>
            <p className="text-[13px] break-words text-muted">{hit.excerpt}</p>
          </li>
        ))}
      </ul>
    </Card>
  );
}

// Neighbors leads to the pages before and after one.
function Neighbors({ of: page }: { of: string }) {
  const { before, after } = neighbors(page);
  return (
    <nav aria-label="Previous and next page" className="flex flex-wrap justify-between gap-2">
      {before && (
        <LinkButton href={paths.docs(before)} className="max-w-full">
          <ArrowLeft /> <span className="truncate">{titleOf(before)}</span>
        </LinkButton>
      )}
      {after && (
        <LinkButton href={paths.docs(after)} className="ml-auto max-w-full">
          <span className="truncate">{titleOf(after)}</span> <ArrowRight />
        </LinkButton>
      )}
    </nav>
  );
}

// OnThisPage links the sections of a page that has several.
function OnThisPage({ of: titles }: { of: string[] }) {
  if (titles.length < 3) return null;
  return (
    <nav aria-label="On this page" className="text-[13px] lg:sticky lg:top-16 lg:w-56 lg:shrink-0">
      <p className="mb-1 font-semibold">On this page</p>
      <ul className="flex flex-wrap gap-x-4 gap-y-1 lg:max-h-[calc(100vh-7rem)] lg:flex-col lg:overflow-y-auto">
        {titles.map((title) => (
          <li key={title}>
            <a className="text-muted hover:text-ink hover:underline" href={`#${slug(title)}`}>
              {title}
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}
