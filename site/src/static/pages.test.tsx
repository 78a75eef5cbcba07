import { describe, expect, it } from "vitest";
import { pages } from "~/lib/docs";
import { fileName, render } from "./pages";

const files = render();

describe("the documentation's files", () => {
  it("are all pages", () => {
    expect([...files.keys()]).toEqual([...pages.keys()].map(fileName));
    for (const [name, text] of files) expect(text, name).toMatch(/^<!doctype html>\n<html lang="en">[^]*<h1[^>]*>[^<]/);
  });

  it("lead to each other, to sections and pictures that exist, and nowhere with an address of a server", () => {
    const exist = import.meta.glob("../../../docs/screenshots/*.webp", { query: "?url" });
    const broken: string[] = [];
    for (const [name, text] of files) {
      const links = [...text.matchAll(/<(?:a|img)[^>]* (?:href|src)="([^"]*)"/g)].map(([, to]) => to!);
      for (const to of links.filter((link) => !/^https?:/.test(link))) {
        const url = new URL(to, `https://here.invalid/${name}`);
        const file = decodeURIComponent(url.pathname.slice(1));
        const known = file.startsWith("screenshots/") ? `../../../docs/${file}` in exist : files.has(file);
        const anchor = decodeURIComponent(url.hash.slice(1));
        const reaches = known && (!anchor || files.get(file)!.includes(`id="${anchor}"`));
        if (to.startsWith("/") || !reaches) broken.push(`${name}: ${to}`);
      }
    }
    expect(broken).toEqual([]);
  });
});
