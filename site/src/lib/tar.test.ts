import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { readTar, wanted, writeTar } from "./tar";

const file = (path: string, text: string) => ({ path, content: new TextEncoder().encode(text) });

describe("tar", () => {
  const deep = `${"folder/".repeat(20)}name.tf`;
  const files = [file("main.tf", "a\nb\n"), file(deep, "x".repeat(1000)), file("empty", ""), file("ünïcode.md", "é")];

  it("reads what it writes", () => {
    const got = readTar(writeTar(files)).files.map((f) => [f.path, new TextDecoder().decode(f.content)]);
    expect(got).toEqual(
      files.map((f) => [f.path, new TextDecoder().decode(f.content)]).sort((a, b) => a[0]!.localeCompare(b[0]!)),
    );
  });

  it("writes what tar reads, and reads what tar writes", () => {
    const dir = mkdtempSync(join(tmpdir(), "site-tar-"));
    writeFileSync(join(dir, "ours.tar"), writeTar(files));
    execFileSync("tar", ["-xf", "ours.tar"], { cwd: dir });
    expect(readFileSync(join(dir, deep), "utf8")).toBe("x".repeat(1000));
    for (const format of ["ustar", "gnu", "pax"]) {
      execFileSync("tar", ["--format", format, "-cf", "theirs.tar", "./main.tf", deep, "empty"], { cwd: dir });
      expect(
        readTar(new Uint8Array(readFileSync(join(dir, "theirs.tar"))))
          .files.map((f) => f.path)
          .sort(),
      ).toEqual(["empty", deep, "main.tf"].sort());
    }
  });

  it("keeps permissions, and names the links that it leaves out", () => {
    const dir = mkdtempSync(join(tmpdir(), "site-tar-"));
    writeFileSync(join(dir, "start.sh"), "true\n", { mode: 0o755 });
    symlinkSync("start.sh", join(dir, "link.sh"));
    execFileSync("tar", ["-cf", "theirs.tar", "start.sh", "link.sh"], { cwd: dir });
    const { files, links } = readTar(new Uint8Array(readFileSync(join(dir, "theirs.tar"))));
    expect(links).toEqual(["link.sh"]);
    expect(readTar(writeTar(files)).files.map((f) => f.mode)).toEqual([0o755]);
  });

  it.each([
    ["cut short", writeTar(files).slice(0, 700)],
    ["a size that is no number", writeTar(files).map((b, i) => (i === 124 ? 120 : b))],
  ])("refuses %s", (_, data) => {
    expect(() => readTar(data)).toThrow("damaged");
  });

  it("leaves out what belongs to the machine", () => {
    const paths = [
      "main.tf",
      ".terraform/providers/x",
      "a/.git/config",
      "terraform.tfstate",
      "x.tfstate.backup",
      "a/crash.log",
      ".terraform.lock.hcl",
    ];
    expect(paths.filter(wanted)).toEqual(["main.tf", ".terraform.lock.hcl"]);
  });
});
