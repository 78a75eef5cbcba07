// @vitest-environment jsdom
import { describe, expect, it, vi } from "vitest";
import type { Workspace, WorkspaceAgent, WorkspaceApp } from "~/api/types";
import { derived, editorLink, jetbrainsLink, sshHost, zedLink } from "./editors";
import { appLink, opens, plainText, portLink, wantsToken, withToken } from "./links";

const w = { name: "dev", owner_name: "ada" } as Workspace;
const agent = { id: "a", name: "main", expanded_directory: "/home/ada" } as WorkspaceAgent;
const app = (more: Partial<WorkspaceApp>) =>
  ({ slug: "code", external: false, subdomain: false, ...more }) as WorkspaceApp;

describe("links", () => {
  it.each([
    ["by path", app({}), "", "/@ada/dev.main/apps/code/"],
    [
      "by host",
      app({ subdomain: true, subdomain_name: "code--main--dev--ada" }),
      "*.apps.example.com:8443",
      "http://code--main--dev--ada.apps.example.com:8443/",
    ],
    ["by host, without one", app({ subdomain: true }), "", ""],
    ["a command", app({ command: "htop -d 5" }), "", "/@ada/dev.main/terminal?command=htop%20-d%205"],
    ["elsewhere", app({ external: true, url: "https://example.com/x" }), "", "https://example.com/x"],
    [
      "an editor",
      app({ external: true, url: "cursor://coder.coder-remote/open?x=1" }),
      "",
      "cursor://coder.coder-remote/open?x=1",
    ],
    ["on this server", app({ external: true, url: "/docs" }), "", "/docs"],
    ["a script", app({ external: true, url: " javascript:alert(1)" }), "", ""],
    ["a script with a tab", app({ external: true, url: "java\tscript:alert(1)" }), "", ""],
    ["a script with line breaks", app({ external: true, url: "\u0001jav\r\nascript\t:alert(1)" }), "", ""],
    ["data", app({ external: true, url: "DATA:text/html,<script>" }), "", ""],
    ["a page's own source", app({ external: true, url: "view-source:https://example.com" }), "", ""],
    ["a file", app({ external: true, url: "file:///etc/passwd" }), "", ""],
    ["nothing", app({ external: true, url: "http://[" }), "", ""],
  ])("an app %s", (_, a, host, want) => {
    expect(appLink(w, agent, a, host)).toBe(want);
  });

  it("ports", () => {
    expect(portLink(w, agent, 8080, "*.x.example:80")).toBe("http://8080--main--dev--ada.x.example:80/");
  });

  // What the extension "Coder Remote" and the plugin for JetBrains Toolbox read from the addresses that are handed to
  // them.
  it("editors", () => {
    const parts = (link: string) => {
      const url = new URL(link);
      return [`${url.protocol}//${url.host}${url.pathname}`, Object.fromEntries(url.searchParams)];
    };
    expect(parts(editorLink("vscode", w, agent, "to/k"))).toEqual([
      "vscode://coder.coder-remote/open",
      {
        owner: "ada",
        workspace: "dev",
        agent: "main",
        url: location.origin,
        token: "to/k",
        openRecent: "true",
        folder: "/home/ada",
      },
    ]);
    expect(parts(editorLink("vscode-insiders", w, { ...agent, expanded_directory: "" }, "tok"))).toEqual([
      "vscode-insiders://coder.coder-remote/open",
      { owner: "ada", workspace: "dev", agent: "main", url: location.origin, token: "tok", openRecent: "true" },
    ]);
    expect(parts(jetbrainsLink(w, { ...agent, expanded_directory: "/home/ada/a b" }, "tok"))).toEqual([
      "jetbrains://gateway/coder",
      {
        workspace: "dev",
        owner: "ada",
        url: location.origin,
        token: "tok",
        agent_id: "a",
        agent_name: "main",
        folder: "/home/ada/a b",
      },
    ]);
  });

  it("editors that connect by SSH", () => {
    const ssh = { hostname_prefix: "coder.", hostname_suffix: "", ssh_config_options: {} };
    const of = (agents: WorkspaceAgent[]) => ({ ...w, latest_build: { resources: [{ agents }] } }) as Workspace;
    expect(sshHost(of([agent]), agent, true, ssh)).toBe("coder.dev");
    expect(sshHost(of([agent]), agent, false, ssh)).toBe("coder.ada--dev");
    expect(sshHost(of([agent, agent]), agent, true, ssh)).toBe("coder.dev.main");
    expect(sshHost(of([agent]), agent, false, { ...ssh, hostname_suffix: "coder" })).toBe("main.dev.ada.coder");
    expect(zedLink("coder.dev", "/home/ada/a b")).toBe("zed://ssh/coder.dev/home/ada/a%20b");
    expect(zedLink("coder.dev", undefined)).toBe("zed://ssh/coder.dev");
    for (const host of ["-oProxyCommand=x", "a b", "a/../b", "", "a?b", "a\nb"]) expect(zedLink(host, "/")).toBe("");
    expect(derived.map(({ scheme }) => scheme)).toEqual(["cursor", "windsurf", "vscodium"]);
  });

  it("a token for programs, and for no website", () => {
    const ide = app({ external: true, url: "jetbrains://gateway/coder?&workspace=dev&token=$SESSION_TOKEN" });
    expect(wantsToken(ide)).toBe(true);
    expect(withToken(appLink(w, agent, ide, ""), "a-b")).toBe("jetbrains://gateway/coder?&workspace=dev&token=a-b");
    for (const url of [
      "https://evil.example/?$SESSION_TOKEN",
      " HTTP://evil.example/?$SESSION_TOKEN",
      "ht\ttps://evil.example/?$SESSION_TOKEN",
      "//evil.example/?$SESSION_TOKEN",
      "https://[/$SESSION_TOKEN",
      "ssh://$SESSION_TOKEN@evil.example",
      "mailto:eve@evil.example?body=$SESSION_TOKEN",
    ])
      expect(wantsToken(app({ external: true, url }))).toBe(false);
    expect(wantsToken(app({ url: "http://localhost/$SESSION_TOKEN" }))).toBe(false);
  });

  it.each([
    ["a slim window", app({ open_in: "slim-window" }), {}, true],
    ["a slim window, with Ctrl", app({ open_in: "slim-window" }), { ctrlKey: true }, false],
    ["a tab", app({ open_in: "tab" }), {}, false],
    ["an address elsewhere", app({ open_in: "slim-window", external: true }), {}, false],
  ])("a click opens %s", (_, a, keys, want) => {
    const open = vi.spyOn(window, "open").mockReturnValue(null);
    const preventDefault = vi.fn();
    opens(a, "/x")({ ctrlKey: false, metaKey: false, shiftKey: false, preventDefault, ...keys });
    expect([open.mock.calls.length, preventDefault.mock.calls.length]).toEqual(want ? [1, 1] : [0, 0]);
    open.mockRestore();
  });

  it.each([
    ["Opens **the** [editor](https://example.com/x) with `code`.", "Opens the editor with code."],
    ["# Title\n__bold__ 2 * 3 * 4 a_b_c", "Title\nbold 2 * 3 * 4 a_b_c"],
    ["![icon](/a.png) `unclosed **marks", "icon `unclosed **marks"],
  ])("shows %s as text", (markdown, want) => {
    expect(plainText(markdown)).toBe(want);
  });
});
