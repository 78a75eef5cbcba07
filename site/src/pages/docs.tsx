// The documentation of this version of the server.
import { useQuery } from "@tanstack/react-query";
import { BookOpen } from "lucide-react";
import { useEffect } from "react";
import Markdown, { headings } from "~/components/markdown";
import { Card, Empty, LinkButton, Page, PendingPage } from "~/components/ui";
import { docsPath, readPage, slug } from "~/lib/docs";
import { useTitle } from "~/lib/hooks";
import { decoded, paths } from "~/lib/path";

export default function Docs({ page }: { page: string }) {
  const text = useQuery({ queryKey: ["docs", page], queryFn: async () => (await readPage(page)) ?? "" });
  const [, title = "", body = ""] = /^# (.*)\n([\s\S]*)$/.exec(text.data ?? "") ?? [];
  useTitle(title || "Documentation");
  useEffect(() => {
    const id = decoded(location.hash.slice(1));
    if (body && id) document.getElementById(id)?.scrollIntoView();
  }, [body]);
  if (text.data === undefined) return <PendingPage query={text} what="page" title="Documentation" />;
  if (!title)
    return (
      <Empty
        icon={<BookOpen />}
        title="Page not found"
        action={<LinkButton href={paths.docs()}>All documentation</LinkButton>}
      >
        The documentation has no page {page}.
      </Empty>
    );
  const resolve = (href: string) => (href.startsWith("#") ? href : docsPath(href, page));
  return (
    <Page
      title={title.replaceAll("`", "")}
      actions={
        page && (
          <LinkButton href={paths.docs()}>
            <BookOpen /> All documentation
          </LinkButton>
        )
      }
    >
      <div className="flex flex-col gap-4 lg:flex-row-reverse lg:items-start">
        <OnThisPage of={headings(body, 2)} />
        <Card className="flex-1">
          <Markdown text={body} resolve={resolve} />
        </Card>
      </div>
    </Page>
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
