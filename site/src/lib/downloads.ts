// What the server offers for download, and for which computers.
import { word } from "./shell";

export type System = "linux" | "darwin" | "windows";

export interface Download {
  name: string; // of the file below /bin/
  system: System;
  arch: string;
  full: boolean; // the server's own program instead of the command line
  sha256: string; // "": this server does not have it
}

export const systems: { system: System; name: string }[] = [
  { system: "linux", name: "Linux" },
  { system: "darwin", name: "macOS" },
  { system: "windows", name: "Windows" },
];

// What a release of codermesh has.
const released = [
  "linux-amd64",
  "linux-arm64",
  "linux-armv7",
  "darwin-amd64",
  "darwin-arm64",
  "windows-amd64.exe",
  "windows-arm64.exe",
];

const archs: Record<string, string> = { amd64: "x86-64", arm64: "ARM, 64 bits", armv7: "ARM, 32 bits" };

export const archName = (arch: string) => archs[arch] ?? arch;

// parse reads the server's list of checksums, and adds the platforms that the server does not have. It throws if the
// text is something else, such as a proxy's page.
export function parse(sums: string): Download[] {
  const out = sums
    .trim()
    .split("\n")
    .flatMap((line) => {
      const [, sha256 = "", name = ""] = /^([0-9a-f]{64}) [ *](coder-[\w.-]+)$/.exec(line) ?? [];
      if (!sha256) throw new Error("The server's list of downloads cannot be read.");
      return describe(name, sha256) ?? []; // a server on another system has its own program, too
    });
  const missing = released
    .map((platform) => `coder-${platform}`)
    .filter((name) => !out.some((d) => d.name === name))
    .map((name) => describe(name, "")!);
  return [...out, ...missing].sort((a, b) => order(a) - order(b) || a.arch.localeCompare(b.arch));
}

const order = (d: Download) => systems.findIndex((s) => s.system === d.system) * 2 + Number(d.full);

function describe(name: string, sha256: string): Download | undefined {
  const [, full, system, arch = ""] = /^coder-(full-)?(linux|darwin|windows)-([a-z0-9]+)(?:\.exe)?$/.exec(name) ?? [];
  return system ? { name, system: system as System, arch, full: full !== undefined, sha256 } : undefined;
}

// systemOf is the system of the browser that sends this header, as far as it says.
export function systemOf(userAgent: string): System | undefined {
  if (/Windows/.test(userAgent)) return "windows";
  if (/Android|iPhone|iPad/.test(userAgent)) return undefined;
  if (/Macintosh|Mac OS X/.test(userAgent)) return "darwin";
  return /Linux|X11/.test(userAgent) ? "linux" : undefined;
}

// installCommand installs the command line from a server: in PowerShell on Windows, and in a shell elsewhere.
export const installCommand = (system: System | undefined, server: string) =>
  system === "windows"
    ? `irm ${word(server + "/install.ps1", true)} | iex`
    : `curl -fsSL ${word(server + "/install.sh", false)} | sh`;
