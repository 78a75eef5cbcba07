// @vitest-environment jsdom
import { render } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import Markdown from "./markdown";

const html = (text: string) => render(<Markdown text={text} />).container.firstElementChild!.innerHTML;

describe("Markdown", () => {
  it("shows what people write", () => {
    expect(html("---\ntags: x\n---\n# Title\n\nA **bold** `a<b`.\n\n- one\n- [x] two\n\n1. first")).toBe(
      [
        "<h2>Title</h2><p>A <strong>bold</strong> <code>a&lt;b</code>.</p>",
        '<ul><li>one</li><li><input disabled="" aria-label="done" type="checkbox" checked="">two</li></ul>',
        '<ol start="1"><li>first</li></ol>',
      ].join(""),
    );
  });

  it("names the column of each cell, for narrow pages, and breaks long words of code after separators", () => {
    const text = "| `flag` to set | |\n|---|---|\n| `--a-b` | `coder_workspace_builds_total{action,status}` |";
    const cells = [...render(<Markdown text={text} />).container.querySelectorAll("td")];
    expect(cells.map((cell) => cell.dataset["column"])).toEqual(["flag to set", ""]);
    expect(cells.map((cell) => cell.innerHTML)).toEqual([
      '<code class="whitespace-nowrap">--a-b</code>',
      "<code>coder_workspace_<wbr>builds_total{<wbr>action,status}</code>",
    ]);
    expect(cells[1]!.textContent).toBe("coder_workspace_builds_total{action,status}");
  });

  it("leaves out comments, and nothing after them", () => {
    expect(html("a\n\n<!-- start -->\n| b |\n|---|\n| c |\n<!-- end -->\n\nd")).not.toMatch(/start|end|&lt;/);
    expect(html("<!-- a --> <b>b</b>")).toContain("b");
    expect(html("<!-- a")).toContain("a");
  });

  it.each([
    ["<script>alert(1)</script>"],
    ["a <img src=x onerror=alert(1)> b"],
    ["![x](https://evil.example/track.png)"],
    ["[x](javascript:alert(1))"],
    ["[x](data:text/html,hello)"],
    ["<div onclick=alert(1)>\n\ntext\n\n</div>"],
  ])("makes nothing active of %s", (text) => {
    const container = render(<Markdown text={text} />).container;
    expect(container.querySelectorAll("script,img,iframe,[onclick],[onerror]")).toHaveLength(0);
    for (const a of container.querySelectorAll("a")) expect(a.protocol).toMatch(/^https?:$/);
  });
});
