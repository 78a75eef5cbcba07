import { describe, expect, it } from "vitest";
import { headings } from "~/components/markdown";
import { contents, docsPath, pages, readPage, slug } from "./docs";

const texts = new Map(
  await Promise.all(["", "decisions", ...pages].map(async (p) => [p, (await readPage(p))!] as const)),
);

const anchors = new Map([...texts].map(([p, text]) => [p, [2, 3, 4].flatMap((d) => headings(text, d)).map(slug)]));

// reaches reports whether an address of the documentation exists, with its section.
const reaches = (address: string) => {
  const [, page = "", , hash] = /^\/docs\/?([^#]*)(#(.*))?$/.exec(address) ?? [];
  return texts.has(page) && (hash === undefined || anchors.get(page)!.includes(hash));
};

const links = (text: string) => [...text.replace(/```[\s\S]*?```/g, "").matchAll(/\]\(([^)\s]+)\)/g)].map((m) => m[1]!);

describe("the documentation", () => {
  it("has a title on every page, and leads to every page", () => {
    for (const [page, text] of texts) expect(text, page).toMatch(/^# \S/);
    const found = new Set([""]);
    for (const page of found)
      for (const href of links(texts.get(page)!)) {
        const to = docsPath(href, page)
          ?.slice("/docs".length + 1)
          .split("#")[0];
        if (to !== undefined) found.add(to);
      }
    expect([...texts.keys()].filter((page) => !found.has(page))).toEqual([]);
  });

  it("has no broken link between its pages", () => {
    const broken = [...texts].flatMap(([page, text]) =>
      links(text)
        .map((href) => (href.startsWith("#") ? `/docs${page && `/${page}`}${href}` : docsPath(href, page)))
        .filter((address) => address !== undefined && !reaches(address))
        .map((address) => `${page}: ${address}`),
    );
    expect(broken).toEqual([]);
  });

  it("is where the dashboard's pages link to", () => {
    const sources = import.meta.glob<string>("../**/*.tsx", { query: "?raw", import: "default", eager: true });
    const used = Object.values(sources).flatMap((s) => [...s.matchAll(/<DocsLink\s+to="([^"]+)"/g)].map((m) => m[1]!));
    expect(used.length).toBeGreaterThan(5);
    for (const to of used) expect(reaches(`/docs/${to}`), to).toBe(true);
  });

  it("leaves what is not part of it alone", () => {
    expect(docsPath("../packaging/Dockerfile", "install")).toBeUndefined();
    expect(docsPath("https://example.com/docs/install.md", "install")).toBeUndefined();
    expect(docsPath("screenshots/mesh.webp", "dashboard")).toBeUndefined();
    expect(docsPath("../operating.md#https", "decisions/0001-stock-tailscale-engine")).toBe("/docs/operating#https");
    expect(docsPath("docs/install.md", "")).toBe("/docs/install");
    expect(docsPath("../README.md", "install")).toBe("/docs");
    const table = "| for | pages |\n|---|---|\n| users | [one](docs/1.md#a) (x, y), [TWO](docs/2.md) |\n";
    expect(contents(`# x\n\n## Documentation\n\n${table}\n## Development\n\nmore\n`)).toBe(
      "# Documentation\n\n## For users\n\n- [One](docs/1.md#a) (x, y)\n- [TWO](docs/2.md)\n",
    );
    expect(slug("Groups, roles and `organizations` from claims")).toBe("groups-roles-and-organizations-from-claims");
  });
});
