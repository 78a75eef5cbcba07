import { expect, it } from "vitest";
import { coloured, indentOf, isHCL, piecesOf, start } from "./hcl";

// shown writes the pieces of lines as [kind:text], and text without colour as it is.
const shown = (...lines: string[]) =>
  coloured("main.tf", lines).map((pieces) => pieces.map((p) => (p.kind ? `[${p.kind}:${p.text}]` : p.text)).join(""));

it.each([
  ['resource "coder_agent" "main" {', '[block:resource] [string:"coder_agent"] [string:"main"] {'],
  ["locals {", "[block:locals] {"],
  ["  dynamic volumes {", "  [block:dynamic] volumes {"],
  ['  os = "linux" # the system', '  [name:os] = [string:"linux"] [comment:# the system]'],
  ["  count = 2.5e3 // copies", "  [name:count] = [literal:2.5e3] [comment:// copies]"],
  ["  x = true && null == y", "  [name:x] = [literal:true] && [literal:null] == y"],
  ["  x = max(var.a, local.true)", "  [name:x] = [function:max]([keyword:var].a, [keyword:local].true)"],
  [
    "  x = { for k, v in var.m : k => v if v }",
    "  [name:x] = { [keyword:for] k, v [keyword:in] [keyword:var].m : k => v [keyword:if] v }",
  ],
  ['  x = "a ${var.b}c"', '  [name:x] = [string:"a ][keyword:${var].b[keyword:}][string:c"]'],
  [
    '  x = "${{ a = 1 }["a"]}"',
    '  [name:x] = [string:"][keyword:${]{ [name:a] = [literal:1] }[[string:"a"]][keyword:}][string:"]',
  ],
  ['  x = "$${no} \\"q\\" 100% $"', '  [name:x] = [string:"$${no} \\"q\\" 100% $"]'],
  ["  a /* b */ = 1", "  a [comment:/* b */] = [literal:1]"],
  ["  größe-1 = 1", "  [name:größe-1] = [literal:1]"],
])("%s", (line, want) => expect(shown(line)).toEqual([want]));

it("carries heredocs, comments and interpolations from line to line", () => {
  expect(shown("s = <<-EOT", "  a ${x} { # text", "  b EOT", "  EOT", "n = 1")).toEqual([
    "[name:s] = [string:<<-EOT]",
    "[string:  a ][keyword:${]x[keyword:}][string: { # text]",
    "[string:  b EOT]",
    "[string:  EOT]",
    "[name:n] = [literal:1]",
  ]);
  expect(shown("/* a", "b = 1", "*/ c = 2")).toEqual([
    "[comment:/* a]",
    "[comment:b = 1]",
    "[comment:*/] [name:c] = [literal:2]",
  ]);
  expect(shown('s = "${f(', '  1)}"')).toEqual([
    '[name:s] = [string:"][keyword:${][function:f](',
    '  [literal:1])[keyword:}][string:"]',
  ]);
});

it("ends a string that is being typed with its line", () => {
  expect(shown('a = "open', "b = 1")).toEqual(['[name:a] = [string:"open]', "[name:b] = [literal:1]"]);
});

it("colours Terraform's files, and no others", () => {
  expect(["main.tf", "a/x.tfvars", ".terraform.lock.hcl", "README.md", "main.tf.json"].map(isHCL)).toEqual([
    true,
    true,
    true,
    false,
    false,
  ]);
  expect(coloured("start.sh", ["if true"])).toEqual([[{ text: "if true", kind: "" }]]);
  const long = `x = "${"a".repeat(5000)}"`;
  expect(coloured("main.tf", [long])).toEqual([[{ text: long, kind: "" }]]);
});

it("loses no character and ends, whatever it reads", () => {
  const parts = [
    '"',
    "${",
    "%{",
    "}",
    "{",
    "<<EOT",
    "EOT",
    "/*",
    "*/",
    "#",
    "\\",
    "$",
    "$$",
    "%",
    "a",
    "é",
    "🚀",
    " ",
    "=",
    "0",
    ".",
    "(",
  ];
  let seed = 1;
  const next = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  const wrong: string[] = [];
  for (let round = 0; round < 5000; round++) {
    const state = start();
    for (let l = 0; l < 3; l++) {
      const line = Array.from({ length: next(12) }, () => parts[next(parts.length)]).join("");
      const pieces = piecesOf(line, state);
      if (pieces.map((p) => p.text).join("") !== line || pieces.some((p) => p.text === "")) wrong.push(line);
    }
  }
  expect(wrong).toEqual([]);
});

it.each([
  ['resource "a" "b" {', "", 2],
  ["  x = f({", "", 4],
  ["  x = {}", "", 2],
  ["  y = 1", "}", 0],
  ["x {", "}", 0],
  ["  } # {", "", 2],
  ['  s = "{"', "", 2],
  ["    ])", "}", 2],
])("indents after %s", (before, line, want) => {
  const state = start();
  piecesOf(before, state);
  expect(indentOf(before, line, state, 2)).toBe(want);
});

it("keeps the indentation of text in a heredoc", () => {
  const state = start();
  piecesOf("s = <<EOT", state);
  piecesOf("    if {", state);
  expect(indentOf("    if {", "", state, 2)).toBe(4);
});
