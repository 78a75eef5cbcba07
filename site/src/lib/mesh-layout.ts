// The layout of the mesh's picture: servers in the middle, other peers around them by kind, so that the picture keeps
// its shape while peers come and go.
import type { MeshPeer } from "~/api/types";

export interface Node {
  peer: MeshPeer;
  x: number;
  y: number;
  below: boolean; // its label
  labelled: boolean;
}

export interface Line {
  key: string;
  from: Node;
  to: Node;
  path: MeshPeer["path"];
}

// The picture's size, and the margin that labels need. Narrow pages have a narrow picture, so that its text stays
// readable.
const wide = { width: 900, height: 420, beside: 90, above: 50 };
const slim = { width: 380, height: 340, beside: 70, above: 40 };
const order: MeshPeer["kind"][] = ["agent", "client", "provisioner"];

export function layout(
  peers: MeshPeer[],
  narrow = false,
): { nodes: Node[]; lines: Line[]; width: number; height: number } {
  const { width, height, beside, above } = narrow ? slim : wide;
  const servers = peers.filter((p) => p.kind === "server");
  const others = peers
    .filter((p) => p.kind !== "server")
    .sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind) || a.name.localeCompare(b.name));
  const apart = Math.min(110, (width - 2 * beside) / Math.max(1, servers.length - 1)); // so that all fit
  const nodes: Node[] = servers.map((peer, i) => ({
    peer,
    x: width / 2 + (i - (servers.length - 1) / 2) * apart,
    y: height / 2,
    below: true,
    labelled: true,
  }));
  // Many peers take several rings, so that they do not touch.
  const perRing = 36;
  const rings = Math.max(1, Math.ceil(others.length / perRing));
  others.forEach((peer, i) => {
    const ring = i % rings;
    const angle = (2 * Math.PI * (i + 0.5)) / others.length - Math.PI / 2;
    const radius = 1 - (0.4 * ring) / rings;
    const y = height / 2 + Math.sin(angle) * (height / 2 - above) * radius;
    nodes.push({
      peer,
      x: width / 2 + Math.cos(angle) * (width / 2 - beside) * radius,
      y,
      below: y > height / 2,
      labelled: others.length <= perRing,
    });
  });
  const byID = new Map(nodes.map((n) => [n.peer.id, n]));
  const lines = new Map<string, Line>();
  for (const from of nodes) {
    for (const id of from.peer.links) {
      const to = byID.get(id);
      const key = [from.peer.id, id].sort().join();
      if (!to || to === from || lines.has(key)) continue;
      lines.set(key, { key, from, to, path: between(from.peer, to.peer) });
    }
  }
  return { nodes, lines: [...lines.values()], width, height };
}

// between is the path of a connection: agents report their clients, servers all other peers.
function between(a: MeshPeer, b: MeshPeer): MeshPeer["path"] {
  const told = a.clients.find((c) => c.id === b.id) ?? b.clients.find((c) => c.id === a.id);
  if (told) return told.path;
  if (a.kind === "client" || b.kind === "client") return "unknown";
  return a.kind === "server" ? b.path : a.path;
}

// reach is how a peer is connected: as the server sees it, or a client as its agents do, by the best of its paths.
export function reach(
  peer: MeshPeer,
  peers: MeshPeer[],
): Pick<MeshPeer, "path" | "latency_ms" | "rx_bytes" | "tx_bytes"> {
  if (peer.kind !== "client") return peer;
  const told = peers.flatMap((p) => p.clients.filter((c) => c.id === peer.id));
  const best = told.find((c) => c.path === "direct") ?? told.find((c) => c.path === "relayed");
  const sum = (of: (c: (typeof told)[number]) => number) => told.reduce((n, c) => n + of(c), 0);
  return {
    path: best?.path ?? "unknown",
    latency_ms: best?.latency_ms ?? 0,
    rx_bytes: sum((c) => c.rx_bytes),
    tx_bytes: sum((c) => c.tx_bytes),
  };
}
