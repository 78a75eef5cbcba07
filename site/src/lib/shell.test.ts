// @vitest-environment jsdom
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { sh, word } from "./shell";

describe("commands", () => {
  it.each([
    ["dev", "dev", "dev"],
    ["ada/dev.main", "ada/dev.main", "ada/dev.main"],
    ["größe", "größe", "größe"],
    ["", "''", '""'],
    ["a; reboot", "'a; reboot'", '"a; reboot"'],
    ["a & calc", "'a & calc'", '"a & calc"'],
    ["it's", "'it'\\''s'", '"it\'s"'],
    ["$(reboot)", "'$(reboot)'", "…"],
    ["%PATH%", "%PATH%", "…"],
    ["a“; calc; “", "'a“; calc; “'", "…"],
    ["=ls", "'=ls'", "=ls"],
    ["C:\\a b\\", "'C:\\a b\\'", '"C:\\a b\\\\"'],
    ["--header-command=reboot", "…", "…"],
    ["a\nb", "…", "…"],
    ["a\u001b]0;", "…", "…"],
    ["a\u202eb", "…", "…"],
    ["a\u200bb", "…", "…"],
    ["a\u00a0b", "…", "…"],
    ["a\u3164b", "…", "…"],
    ["a".repeat(1025), "…", "…"],
  ])("hold %s as a word", (text, unix, windows) => {
    expect([word(text, false), word(text, true)]).toEqual([unix, windows]);
  });

  it("are made of words", () => {
    expect(sh`coder port-forward ${"my; dev"} --tcp ${80}:${80} ${"-x"}`).toBe(
      "coder port-forward 'my; dev' --tcp 80:80 …",
    );
    expect(sh`coder config-ssh`).toBe("coder config-ssh");
  });

  // Every text of the dashboard that begins like a command and holds a value.
  it("are tagged wherever the dashboard makes them", () => {
    const made = /(sh)?`[^`]*?(?:\b(?:coder|ssh|curl|irm) |CODER_[A-Z_]+=)[^`]*`/g;
    const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((f) => /(?<!\.test)\.tsx?$/.test(f));
    const found = files.flatMap((f) =>
      [...readFileSync(join("src", f), "utf8").matchAll(made)]
        .filter(([text]) => text.replaceAll("${word(", "").includes("${"))
        .map(([text, tag]) => ({ f, text, tag })),
    );
    expect(found.filter(({ tag }) => !tag)).toEqual([]);
    expect(found.length).toBeGreaterThan(8);
  });
});
