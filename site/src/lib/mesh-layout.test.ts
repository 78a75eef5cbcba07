import { expect, it } from "vitest";
import type { MeshPeer } from "~/api/types";
import { layout, reach } from "./mesh-layout";

const peer = (id: string, kind: MeshPeer["kind"], links: string[] = []): MeshPeer => ({
  id,
  kind,
  links,
  name: id,
  path: kind === "agent" ? "direct" : "unknown",
  latency_ms: 1,
  rx_bytes: 0,
  tx_bytes: 0,
  last_seen: "",
  connected: true,
  server_id: "s",
  relay_server_id: "s",
  clients: [],
});

it("draws each connection once, and none to peers that are not shown", () => {
  const got = layout([
    peer("s", "server", ["a", "hidden", "s"]),
    peer("a", "agent", ["s"]),
    peer("c", "client", ["a"]),
  ]);
  expect(got.lines.map((l) => [l.key, l.path])).toEqual([
    ["a,s", "direct"],
    ["a,c", "unknown"],
  ]);
});

it("keeps every peer inside the picture", () => {
  const got = layout([peer("s", "server"), ...Array.from({ length: 500 }, (_, i) => peer(`a${i}`, "agent", ["s"]))]);
  for (const n of got.nodes) {
    expect(n.x).toBeGreaterThan(20);
    expect(n.x).toBeLessThan(got.width - 20);
    expect(n.y).toBeGreaterThan(20);
    expect(n.y).toBeLessThan(got.height - 20);
  }
});

it("takes an agent's word for the way to its clients", () => {
  const agent = {
    ...peer("a", "agent", ["s", "c"]),
    clients: [{ id: "c", path: "relayed" as const, latency_ms: 80, rx_bytes: 5, tx_bytes: 6 }],
  };
  const all = [peer("s", "server", ["a"]), agent, peer("c", "client", ["a"])];
  expect(layout(all).lines.map((l) => [l.key, l.path])).toEqual([
    ["a,s", "direct"],
    ["a,c", "relayed"],
  ]);
  expect(reach(all[2]!, all)).toEqual({ path: "relayed", latency_ms: 80, rx_bytes: 5, tx_bytes: 6 });
  expect(reach(all[2]!, all.slice(2)).path).toBe("unknown");
  expect(reach(agent, all)).toBe(agent);
});

it("keeps many servers inside a narrow picture", () => {
  const got = layout(
    Array.from({ length: 9 }, (_, i) => peer(`s${i}`, "server")),
    true,
  );
  for (const n of got.nodes) {
    expect(n.x).toBeGreaterThan(20);
    expect(n.x).toBeLessThan(got.width - 20);
  }
});
