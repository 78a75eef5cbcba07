// The documentation: the repository's docs folder, which is part of the dashboard. This module contains the texts of
// all pages, which the search needs, so load it where they are shown.
import readme from "../../../README.md?raw";
import { slug } from "./slug";

const texts = import.meta.glob<string>("../../../docs/{*,decisions/*}.md", {
  query: "?raw",
  import: "default",
  eager: true,
});

const within = (file: string) => file.slice("../../../docs/".length);

// pages has the text of each page by its name, such as "sign-in" or "decisions/0016-hole-punching". The page "" is the
// table of contents, and "decisions" is the README of that folder.
export const pages = new Map<string, string>([["", contents(readme)]]);
for (const [file, text] of Object.entries(texts)) pages.set(pageOf(within(file).slice(0, -".md".length)), text);

// pageOf is the page of a file, whose name comes without its suffix. A folder's page is its README.
function pageOf(file: string): string {
  return file.replace(/\/README$/, "");
}

// contents is the README's table of documents, as a page with a list for each of its rows.
export function contents(text: string): string {
  const section = /^## Documentation\n([\s\S]*?)(?=^## )/m.exec(text)?.[1] ?? "";
  const rows = [...section.matchAll(/^\| ([^|]+) \| (\[[^|]+) \|$/gm)];
  return `# Documentation\n${rows.map(([, readers, links]) => `\n## For ${readers}\n\n${list(links!)}\n`).join("")}`;
}

// list makes a list of links with commas between them. What a page is about can follow its link in parentheses.
function list(links: string): string {
  return [...links.matchAll(/\[([^\]]+)(\]\([^)]+\)(?: \([^)]+\))?)/g)]
    .map(([, name = "", rest]) => `- [${name.replace(/^./, (c) => c.toUpperCase())}${rest}`)
    .join("\n");
}

// fileOf returns the path in the repository of what a link in a page leads to, with its section; undefined for other
// sites.
export function fileOf(href: string, from: string): URL | undefined {
  // The table of contents is the README's, one folder above the others.
  const file = from === "" ? "README.md" : `docs/${from === "decisions" ? "decisions/README" : from}.md`;
  const url = new URL(href, `https://here.invalid/${file}`);
  return url.host === "here.invalid" ? url : undefined;
}

// docsPath is the address of what a link in a page leads to, undefined if it is not part of the documentation.
export function docsPath(href: string, from: string): string | undefined {
  const url = fileOf(href, from);
  if (url?.pathname === "/README.md") return "/docs";
  const page = pageOf(/^\/docs\/(.+?)(\.md|\/)?$/.exec(url?.pathname ?? "")?.[1] ?? "");
  return page && pages.has(page) ? `/docs/${page}${url!.hash}` : undefined;
}

// titleOf is a page's title without its markup.
export const titleOf = (page: string): string =>
  /^# (.*)$/m.exec(pages.get(page) ?? "")?.[1]?.replaceAll("`", "") ?? page;

// order lists the pages as the table of contents does, each once, and then the decisions.
export const order: string[] = [
  ...new Set([
    ...[...pages.get("")!.matchAll(/\]\(([^)\s]+)\)/g)].map(
      ([, href = ""]) => docsPath(href, "")?.slice("/docs/".length).split("#")[0] ?? "",
    ),
    ...[...pages.keys()].filter((page) => page.startsWith("decisions/")),
  ]),
].filter((page) => page !== "");

// neighbors are the pages before and after a page in the order.
export function neighbors(page: string): { before?: string; after?: string } {
  const at = order.indexOf(page);
  return at < 0 ? { after: order[0] } : { before: order[at - 1], after: order[at + 1] };
}

interface Section {
  page: string;
  heading: string; // "" before the first
  lower: { title: string; heading: string; text: string };
  text: string;
}

// sectionsOf cuts a page at its headings of the second to fourth level. A line of code is none.
function sectionsOf(page: string): Section[] {
  const title = titleOf(page);
  const found: { heading: string; lines: string[] }[] = [{ heading: "", lines: [] }];
  let code = false;
  for (const line of pages.get(page)!.split("\n").slice(1)) {
    if (line.startsWith("```")) code = !code;
    const heading = code ? undefined : /^#{2,4} (.*)$/.exec(line)?.[1];
    if (heading === undefined) found.at(-1)!.lines.push(line);
    else found.push({ heading: plain(heading), lines: [] });
  }
  return found.map(({ heading, lines }) => {
    const text = plain(lines.join("\n"));
    return {
      page,
      heading,
      text,
      lower: { title: title.toLowerCase(), heading: heading.toLowerCase(), text: text.toLowerCase() },
    };
  });
}

// plain removes the markup that readers do not see.
const plain = (markdown: string): string =>
  markdown
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/^\|[-| :]+\|$/gm, "")
    .replace(/[`*]|^#+ |^```.*$|^\||\|$/gm, "")
    .replace(/\s*\|\s*|\s+/g, (gap) => (gap.includes("|") ? " · " : " "))
    .trim();

let cut: Section[] | undefined;

// sections are those of all pages in their order, cut when they are first needed.
const sections = () => (cut ??= order.flatMap(sectionsOf));

const toSection = (s: Section) => `/docs/${s.page}${s.heading && `#${slug(s.heading)}`}`;

// Place is a page or a section of one.
export interface Place {
  title: string; // of the page
  heading: string; // "" for the page
  to: string;
}

// places lists all pages and their sections.
export const places = (): Place[] =>
  sections().map((s) => ({ title: titleOf(s.page), heading: s.heading, to: toSection(s) }));

// Hit is a place that answers a search.
export interface Hit extends Place {
  excerpt: string;
}

const mostHits = 30;

// search returns the sections in which every word of a search occurs, the best first: a word in a title counts more
// than one in a heading, and that more than one in the text. Decisions come after what describes the product.
export function search(text: string): Hit[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  return sections()
    .map((s) => ({ s, score: scoreOf(s, words) }))
    .filter(({ score }) => score > 0)
    .toSorted((a, b) => b.score - a.score)
    .slice(0, mostHits)
    .map(({ s }) => ({
      title: titleOf(s.page),
      heading: s.heading,
      to: toSection(s),
      excerpt: excerptOf(s, words),
    }));
}

function scoreOf({ page, lower }: Section, words: string[]): number {
  let score = 0;
  for (const word of words) {
    const inText = lower.text.split(word).length - 1;
    const once =
      (lower.heading.includes(word) ? 20 : 0) +
      (lower.title.includes(word) ? (lower.heading === "" ? 40 : 5) : 0) +
      Math.min(inText, 5);
    if (once === 0) return 0;
    score += once;
  }
  return page.startsWith("decisions/") ? score / 4 : score;
}

const excerptLength = 160;

// excerptOf is the part of a section around the first of the words in it.
function excerptOf({ text, lower }: Section, words: string[]): string {
  const at = Math.min(...words.map((w) => lower.text.indexOf(w)).filter((i) => i >= 0));
  if (!Number.isFinite(at) || text.length <= excerptLength)
    return text.length > excerptLength ? `${text.slice(0, excerptLength)}…` : text;
  const from = text.lastIndexOf(" ", Math.max(0, at - excerptLength / 4)) + 1;
  const to = from + excerptLength;
  return `${from > 0 ? "…" : ""}${text.slice(from, to)}${to < text.length ? "…" : ""}`;
}
