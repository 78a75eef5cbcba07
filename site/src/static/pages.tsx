// The documentation as files for any web server, or none: `make docs`.
import { renderToStaticMarkup } from "react-dom/server";
import { Router } from "wouter";
import Markdown, { headings } from "~/components/ui/markdown";
import { docsPath, fileOf, neighbors, pages, titleOf } from "~/lib/docs";
import { slug } from "~/lib/slug";

// fileName is the file of a page.
export const fileName = (page: string) => `${page || "index"}.html`;

// render returns the text of each file by its name.
export const render = (): Map<string, string> =>
  new Map(
    [...pages.keys()].map((page) => [fileName(page), `<!doctype html>\n${renderToStaticMarkup(<File of={page} />)}\n`]),
  );

// between is the address of a file as seen from a page.
const between = (page: string, file: string) => (page.includes("/") ? `../${file}` : file);

// linkFrom is the address of what a link in a page leads to, undefined if it is not part of the documentation.
function linkFrom(page: string, href: string): string | undefined {
  if (href.startsWith("#")) return href;
  const [, to, hash = ""] = /^\/docs\/?([^#]*)(#.*)?$/.exec(docsPath(href, page) ?? "") ?? [];
  return to === undefined ? undefined : between(page, fileName(to)) + hash;
}

function pictureFrom(page: string, href: string): string | undefined {
  const path = fileOf(href, page)?.pathname ?? "";
  return path.startsWith("/docs/screenshots/") ? between(page, path.slice("/docs/".length)) : undefined;
}

function File({ of: page }: { of: string }) {
  const [, title = "", body = ""] = /^# (.*)\n([\s\S]*)$/.exec(pages.get(page)!) ?? [];
  const { before, after } = neighbors(page);
  const sections = headings(body, 2);
  const to = (file: string) => between(page, file);
  return (
    <html lang="en">
      <head>
        <meta charSet="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>{`${titleOf(page)} · codermesh`}</title>
        <link rel="stylesheet" href={to("docs.css")} />
        <script src={to("search.js")} data-root={to("")} defer />
      </head>
      <body>
        <header className="border-b border-line bg-panel">
          <div className="mx-auto flex max-w-6xl flex-wrap items-center gap-4 px-3 py-2 sm:px-6">
            <a className="font-semibold" href={to(fileName(""))}>
              codermesh
            </a>
            <input
              id="search"
              type="search"
              aria-label="Search the documentation"
              placeholder="Search"
              hidden
              className="ml-auto h-8 w-64 max-w-full rounded-md border border-edge bg-panel px-2.5"
            />
          </div>
        </header>
        <main className="mx-auto flex w-full max-w-6xl flex-col gap-4 px-3 py-5 sm:px-6">
          <ul id="results" aria-label="Results" hidden className="flex flex-col gap-3" />
          <div id="page" className="flex flex-col gap-4">
            <h1 className="text-xl font-semibold tracking-tight break-words">{title.replaceAll("`", "")}</h1>
            <div className="flex flex-col gap-4 lg:flex-row-reverse lg:items-start">
              {sections.length > 2 && (
                <nav aria-label="On this page" className="text-[13px] lg:sticky lg:top-4 lg:w-56 lg:shrink-0">
                  <ul className="flex flex-wrap gap-x-4 gap-y-1 lg:flex-col">
                    {sections.map((text) => (
                      <li key={text}>
                        <a className="text-muted hover:underline" href={`#${slug(text)}`}>
                          {text}
                        </a>
                      </li>
                    ))}
                  </ul>
                </nav>
              )}
              <div className="min-w-0 flex-1 rounded-lg border border-line bg-panel p-4">
                <Router ssrPath="/">
                  <Markdown
                    text={body}
                    resolve={(href) => linkFrom(page, href)}
                    picture={(href) => pictureFrom(page, href)}
                  />
                </Router>
              </div>
            </div>
            <nav aria-label="Previous and next page" className="flex flex-wrap justify-between gap-2 text-accent">
              {page && before && <a href={to(fileName(before))}>← {titleOf(before)}</a>}
              {after && (
                <a className="ml-auto" href={to(fileName(after))}>
                  {titleOf(after)} →
                </a>
              )}
            </nav>
          </div>
        </main>
      </body>
    </html>
  );
}
