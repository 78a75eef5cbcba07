// @vitest-environment jsdom
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { isPrivateKey, sshCommand } from "./ssh-key";

describe("private keys", () => {
  it.each([["ed25519"], ["ecdsa"], ["rsa", "-b", "1024"], ["rsa", "-b", "1024", "-m", "PEM"]])(
    "recognizes what ssh-keygen makes: %s",
    (...args) => {
      const [type = "", ...format] = args;
      const file = join(mkdtempSync(join(tmpdir(), "key-")), "id");
      execFileSync("ssh-keygen", ["-q", "-t", type, ...format, "-N", "", "-C", "ada's private key", "-f", file]);
      const text = readFileSync(file, "utf8");
      expect(isPrivateKey(text)).toBe(true);
      expect(isPrivateKey(text.replaceAll("\n", " "))).toBe(true);
      expect(isPrivateKey(readFileSync(`${file}.pub`, "utf8"))).toBe(false);
    },
  );

  it.each([
    ["b3BlbnNzaC1rZXktdjEAAAAABG5vbmU", true],
    ["PuTTY-User-Key-File-3: ssh-ed25519", true],
    ["AGE-SECRET-KEY-1QQ", true],
    ["ssh-ed25519 AAAA of my private key", false],
    ["", false],
  ])("%s: %s", (text, want) => expect(isPrivateKey(text)).toBe(want));
});

it.each([
  ["coder.example.com:22", "ssh WORKSPACE@coder.example.com"],
  ["127.0.0.1:2222", "ssh -p 2222 WORKSPACE@127.0.0.1"],
  ["[fd00::1]:2222", "ssh -p 2222 WORKSPACE@fd00::1"],
])("names the gateway at %s", (address, command) => expect(sshCommand(address)).toBe(command));
