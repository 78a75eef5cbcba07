import { describe, expect, it } from "vitest";
import { headings } from "~/components/ui/markdown";
import { contents, docsPath, neighbors, order, pages, places, search, titleOf } from "./docs";
import { names, picture } from "./docs-pictures";
import readme from "../../../README.md?raw";
import { slug } from "./slug";

const anchors = new Map([...pages].map(([p, text]) => [p, [2, 3, 4].flatMap((d) => headings(text, d)).map(slug)]));

// reaches reports whether an address of the documentation exists, with its section.
const reaches = (address: string) => {
  const [, page = "", , hash] = /^\/docs\/?([^#]*)(#(.*))?$/.exec(address) ?? [];
  return pages.has(page) && (hash === undefined || anchors.get(page)!.includes(hash));
};

const links = (text: string) => [...text.replace(/```[\s\S]*?```/g, "").matchAll(/\]\(([^)\s]+)\)/g)].map((m) => m[1]!);

describe("the documentation", () => {
  it("has a title on every page, and leads to every page", () => {
    for (const [page, text] of pages) expect(text, page).toMatch(/^# \S/);
    const found = new Set([""]);
    for (const page of found)
      for (const href of links(pages.get(page)!)) {
        const to = docsPath(href, page)
          ?.slice("/docs".length + 1)
          .split("#")[0];
        if (to !== undefined) found.add(to);
      }
    expect([...pages.keys()].filter((page) => !found.has(page))).toEqual([]);
  });

  it("has no broken link between its pages", () => {
    const broken = [...pages].flatMap(([page, text]) =>
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

  it("has an order, in which each page but the first leads to the one before it", () => {
    expect([...pages.keys()].filter((page) => page !== "" && !order.includes(page))).toEqual([]);
    expect(neighbors("")).toEqual({ after: order[0] });
    expect(neighbors(order[0]!).before).toBeUndefined();
    expect(neighbors(order.at(-1)!).after).toBeUndefined();
    for (const page of order.slice(1)) expect(neighbors(neighbors(page).before!).after).toBe(page);
    for (const page of order) expect(titleOf(page), page).not.toBe("");
  });

  it("has the pictures that its pages show", () => {
    const shown = [...pages].flatMap(([page, text]) =>
      [...text.replace(/^ {4}.*$/gm, "").matchAll(/!\[[^\]]*\]\(([^)\s]+)\)/g)].map(
        ([, href = ""]) => [page, href] as const,
      ),
    );
    expect(shown.length).toBeGreaterThan(1);
    for (const [page, href] of shown) expect(picture(href, page), `${page}: ${href}`).toMatch(/\.webp/);
    const all = [readme, ...pages.values()].join("\n");
    expect(names.filter((name) => !all.includes(`screenshots/${name}`))).toEqual([]);
    expect(picture("https://example.com/docs/screenshots/mesh.webp", "dashboard")).toBeUndefined();
    expect(picture("screenshots/nothing.webp", "dashboard")).toBeUndefined();
  });

  it("is searched by all words of a search, titles first", () => {
    const first = (text: string) => search(text)[0]?.to;
    expect(first("sign-in")).toBe("/docs/sign-in");
    expect(first("QUIET hours")).toMatch(/^\/docs\/schedules#/);
    expect(first("  ")).toBeUndefined();
    expect(search("no-page-has-this-word")).toEqual([]);
    expect(search("database no-page-has-this-word")).toEqual([]);
    const hit = search("pg_hba.conf database password")[0] ?? search("advisory locks pooler")[0]!;
    expect(hit.excerpt).not.toMatch(/[`*]|\]\(|\n/);
    for (const { to } of places()) expect(reaches(to), to).toBe(true);
    for (const { excerpt } of search("the")) expect(excerpt.length).toBeLessThan(170);
  });

  it("leaves what is not part of it alone", () => {
    expect(docsPath("../packaging/Dockerfile", "install")).toBeUndefined();
    expect(docsPath("https://example.com/docs/install.md", "install")).toBeUndefined();
    expect(docsPath("screenshots/mesh.webp", "dashboard")).toBeUndefined();
    expect(docsPath("../operating.md#https", "decisions/0001-stock-tailscale-engine")).toBe("/docs/operating#https");
    expect(docsPath("docs/install.md", "")).toBe("/docs/install");
    expect(docsPath("docs/decisions/README.md", "")).toBe("/docs/decisions");
    expect(docsPath("0021-streams.md", "decisions")).toBe("/docs/decisions/0021-streams");
    expect(docsPath("../README.md", "install")).toBe("/docs");
    const table = "| for | pages |\n|---|---|\n| users | [one](docs/1.md#a) (x, y), [TWO](docs/2.md) |\n";
    expect(contents(`# x\n\n## Documentation\n\n${table}\n## Development\n\nmore\n`)).toBe(
      "# Documentation\n\n## For users\n\n- [One](docs/1.md#a) (x, y)\n- [TWO](docs/2.md)\n",
    );
    expect(slug("Groups, roles and `organizations` from claims")).toBe("groups-roles-and-organizations-from-claims");
  });
});
