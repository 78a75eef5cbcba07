// @vitest-environment jsdom
import { afterEach, describe, expect, it, vi } from "vitest";
import type { Region } from "~/api/types";
import { appLink, portLink } from "./links";
import { automatic, choose, measure, pick, places } from "./regions";

const listed = (id: string, url: string, more: Partial<Region> = {}): Region => ({
  id,
  name: id,
  display_name: "",
  icon_url: "",
  healthy: true,
  path_app_url: url,
  wildcard_hostname: "",
  ...more,
});
const list = places([
  listed("primary", "http://localhost:3000", { display_name: "Default" }),
  listed("eu", "https://eu.example.com/", { wildcard_hostname: "*.eu.example.com:8443" }),
  listed("us", "https://us.example.com"),
]);

afterEach(() => {
  choose(automatic);
  vi.unstubAllGlobals();
});

describe("regions", () => {
  it("lists the server at the page's own address, and no proxy that only relays", () => {
    const all = places([
      listed("primary", "http://server"),
      listed("relay", "http://server"),
      listed("down", "http://server", { healthy: false }),
      listed("eu", "http://eu/"),
    ]);
    expect(all.map((p) => [p.id, p.url, p.own, p.healthy])).toEqual([
      ["primary", location.origin, true, true],
      ["down", "http://server", false, false],
      ["eu", "http://eu", false, true],
    ]);
  });

  it("picks the nearest, or the choice, and never one that does not answer", () => {
    const at = (entries: [string, number][]) => pick(list, new Map(entries))?.id;
    expect(
      at([
        ["primary", 80],
        ["eu", 20],
        ["us", 200],
      ]),
    ).toBe("eu");
    expect(at([["primary", 80]])).toBe("primary");
    expect(at([])).toBe("primary");
    choose("us");
    expect(
      at([
        ["primary", 80],
        ["eu", 20],
        ["us", 200],
      ]),
    ).toBe("us");
    // The choice has failed: the server takes its place at once, not the nearest region.
    expect(
      at([
        ["primary", 80],
        ["eu", 20],
      ]),
    ).toBe("primary");
    const ill = list.map((p) => ({ ...p, healthy: p.id !== "us" }));
    expect(pick(ill, new Map([["us", 1]]))?.id).toBe("primary");
    choose("deleted");
    expect(at([["eu", 20]])).toBe("primary");
  });

  it("measures without credentials, and leaves out who does not answer", async () => {
    const asked = vi.fn((url: string, how: RequestInit) =>
      url.startsWith("https://eu") || how.credentials !== "omit"
        ? Promise.reject(new Error("refused"))
        : Promise.resolve(new Response("OK")),
    );
    vi.stubGlobal("fetch", asked);
    const found = await measure(list.map((p) => ({ ...p, healthy: p.id !== "us" })));
    expect([...found.keys()]).toEqual(["primary"]);
    expect(asked.mock.calls.every(([url]) => url.endsWith("/latency-check"))).toBe(true);
    expect(asked.mock.calls.some(([url]) => url.includes("us.example.com"))).toBe(false);
  });

  it("links apps and ports to the region", () => {
    const w = { name: "dev", owner_name: "ada" } as never;
    const agent = { name: "main" } as never;
    const app = (subdomain: boolean) => ({ slug: "code", subdomain, external: false }) as never;
    const [, eu, us] = list;
    expect(appLink(w, agent, app(false), "", eu!)).toBe("https://eu.example.com/@ada/dev.main/apps/code/");
    expect(appLink(w, agent, app(true), "", eu!)).toBe("https://code--main--dev--ada.eu.example.com:8443/");
    // A region without hosts leaves apps that need one to the server.
    expect(appLink(w, agent, app(true), "*.apps.example.com:80", us!)).toBe(
      "http://code--main--dev--ada.apps.example.com:80/",
    );
    expect(appLink(w, agent, app(true), "", us!)).toBe("");
    expect(portLink(w, agent, 8080, "*.x.example:80", eu!)).toBe("https://8080--main--dev--ada.eu.example.com:8443/");
    expect(portLink(w, agent, 8080, "*.x.example:80", us!)).toBe("http://8080--main--dev--ada.x.example:80/");
  });
});
