import { describe, expect, it } from "vitest";
import { installCommand, parse, systemOf } from "./downloads";

const sum = "a".repeat(64);

describe("downloads", () => {
  it("lists what the server has, and what it lacks", () => {
    const here = ["coder-darwin-arm64", "coder-full-linux-amd64", "coder-full-plan9-mips", "coder-linux-amd64"];
    const all = parse(here.map((name) => `${sum}  ${name}\n`).join(""));
    expect(all.map((d) => `${d.name} ${d.sha256 ? "here" : "missing"}`)).toEqual([
      "coder-linux-amd64 here",
      "coder-linux-arm64 missing",
      "coder-linux-armv7 missing",
      "coder-full-linux-amd64 here",
      "coder-darwin-amd64 missing",
      "coder-darwin-arm64 here",
      "coder-windows-amd64.exe missing",
      "coder-windows-arm64.exe missing",
    ]);
  });

  it.each(["", "<!doctype html>", `${sum}  ../etc/passwd`, `xyz  coder-linux-amd64`])("refuses %s", (text) => {
    expect(() => parse(text)).toThrow();
  });

  it.each([
    ["Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "linux", "curl -fsSL https://c/install.sh | sh"],
    ["Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)", "darwin", "curl -fsSL https://c/install.sh | sh"],
    ["Mozilla/5.0 (Windows NT 10.0; Win64; x64)", "windows", "irm https://c/install.ps1 | iex"],
    ["Mozilla/5.0 (Linux; Android 14; Pixel 8)", undefined, "curl -fsSL https://c/install.sh | sh"],
    ["Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X)", undefined, "curl -fsSL https://c/install.sh | sh"],
  ])("knows the system of %s", (agent, system, command) => {
    expect(systemOf(agent)).toBe(system);
    expect(installCommand(systemOf(agent), "https://c")).toBe(command);
  });
});
