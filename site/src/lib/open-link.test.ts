// @vitest-environment jsdom
import { expect, it } from "vitest";
import { htmlBadge, markdownBadge, openLink, suggestedName } from "./open-link";

it("makes links and badges that no value breaks out of", () => {
  const values = {
    repo: "https://git.example.com/a?b=c&d",
    'odd"name)': `x") onload='alert(1)' [y](javascript:z) <b>`,
  };
  const link = openLink("https://coder.example.com", { template: "go lang", name: "dev", auto: true, values });
  const query = new URL(link).searchParams;
  expect(new URL(link).pathname).toBe("/templates/go%20lang/workspace");
  expect([...query]).toEqual([
    ["mode", "auto"],
    ["name", "dev"],
    ["param.repo", values.repo],
    [`param.odd"name)`, values['odd"name)']],
  ]);
  const markdown = markdownBadge("https://coder.example.com", link);
  const parts = /^\[!\[Open in Coder\]\(([^()\s]+)\)\]\(([^()\s]+)\)$/.exec(markdown);
  expect(parts?.[1]).toBe("https://coder.example.com/open-in-coder.svg");
  expect([...new URL(parts![2]!).searchParams]).toEqual([...query]);
  const html = new DOMParser().parseFromString(htmlBadge("https://coder.example.com", link), "text/html").body;
  expect(html.children).toHaveLength(1);
  const a = html.firstElementChild as HTMLAnchorElement;
  expect([...new URL(a.href).searchParams]).toEqual([...query]);
  expect(a.attributes).toHaveLength(1);
  expect(a.children).toHaveLength(1);
});

it("leaves out what is not chosen", () => {
  const link = openLink("https://c.example", { template: "go", name: "", auto: false, values: {} });
  expect(link).toBe("https://c.example/templates/go/workspace?mode=manual");
});

it("makes up names that a workspace can have", () => {
  for (const template of ["go", "a".repeat(32), `${"a".repeat(26)}-b`])
    expect(suggestedName(template)).toMatch(/^(?!.*--)[a-z][a-z-]*-[0-9a-f]{4}$/);
  expect(suggestedName("a".repeat(40)).length).toBeLessThanOrEqual(32);
});
