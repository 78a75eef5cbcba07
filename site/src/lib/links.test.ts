// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import type { Workspace, WorkspaceAgent, WorkspaceApp } from "~/api/types";
import { appLink, editorLink, portLink } from "./links";

const w = { name: "dev", owner_name: "ada" } as Workspace;
const agent = { id: "a", name: "main", expanded_directory: "/home/ada" } as WorkspaceAgent;
const app = (more: Partial<WorkspaceApp>) => ({ slug: "code", external: false, subdomain: false, ...more }) as WorkspaceApp;

describe("links", () => {
  it.each([
    ["by path", app({}), "", "/@ada/dev.main/apps/code/"],
    ["by host", app({ subdomain: true, subdomain_name: "code--main--dev--ada" }), "*.apps.example.com:8443", "http://code--main--dev--ada.apps.example.com:8443/"],
    ["by host, without one", app({ subdomain: true }), "", ""],
    ["a command", app({ command: "htop -d 5" }), "", "/@ada/dev.main/terminal?command=htop%20-d%205"],
    ["elsewhere", app({ external: true, url: "https://example.com/x" }), "", "https://example.com/x"],
    ["a script", app({ external: true, url: " javascript:alert(1)" }), "", ""],
  ])("an app %s", (_, a, host, want) => {
    expect(appLink(w, agent, a, host)).toBe(want);
  });

  it("ports and editors", () => {
    expect(portLink(w, agent, 8080, "*.x.example:80")).toBe("http://8080--main--dev--ada.x.example:80/");
    expect(editorLink("vscode", w, agent, "tok")).toMatch(/^vscode:\/\/coder\.coder-remote\/open\?owner=ada&workspace=dev&agent=main&url=.*&token=tok.*&folder=%2Fhome%2Fada$/);
  });
});
