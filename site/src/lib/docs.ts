// The documentation: the repository's docs folder, which is part of the dashboard. Its pages load when they are shown.

const readers = import.meta.glob<string>("../../../docs/{*,decisions/*}.md", { query: "?raw", import: "default" });

const read = new Map(Object.entries(readers).map(([file, load]) => [file.slice("../../../docs/".length, -3), load]));

export const pages = [...read.keys()];

// readPage returns a page's text, undefined if there is none. The page "" is the table of contents, and "decisions"
// lists the decisions.
export async function readPage(page: string): Promise<string | undefined> {
  if (page === "") return contents((await import("../../../README.md?raw")).default);
  if (page === "decisions") return decisions();
  return read.get(page)?.();
}

// contents is the README's table of documents, as a page with a list for each of its rows.
export function contents(readme: string): string {
  const section = /^## Documentation\n([\s\S]*?)(?=^## )/m.exec(readme)?.[1] ?? "";
  const rows = [...section.matchAll(/^\| ([^|]+) \| (\[[^|]+) \|$/gm)];
  return `# Documentation\n${rows.map(([, readers, links]) => `\n## For ${readers}\n\n${list(links!)}\n`).join("")}`;
}

// list makes a list of links with commas between them. What a page is about can follow its link in parentheses.
const list = (links: string) =>
  [...links.matchAll(/\[([^\]]+)(\]\([^)]+\)(?: \([^)]+\))?)/g)]
    .map(([, name = "", rest]) => `- [${name.replace(/^./, (c) => c.toUpperCase())}${rest}`)
    .join("\n");

function decisions(): string {
  const names = pages.filter((p) => p.startsWith("decisions/")).map((p) => p.slice("decisions/".length));
  return `# Decisions\n\n${names.map((n) => `- [${n.replaceAll("-", " ")}](decisions/${n}.md)`).join("\n")}\n`;
}

// docsPath is the address of what a link in a page leads to, undefined if it is not part of the documentation.
export function docsPath(href: string, from: string): string | undefined {
  // The table of contents is the README's, one folder above the others.
  const base = from === "" ? "README.md" : `docs/${from}.md`;
  const url = new URL(href, `https://here.invalid/${base}`);
  if (url.host !== "here.invalid") return undefined;
  if (url.pathname === "/README.md") return "/docs";
  const page = /^\/docs\/(.+?)(\.md|\/)?$/.exec(url.pathname)?.[1] ?? "";
  return page === "decisions" || read.has(page) ? `/docs/${page}${url.hash}` : undefined;
}

// slug is a heading's anchor, by the rule of the places where the repository is read.
export const slug = (heading: string) =>
  heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replace(/\s/g, "-");
