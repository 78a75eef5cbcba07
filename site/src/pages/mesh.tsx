import { useQuery } from "@tanstack/react-query";
import { Waypoints } from "lucide-react";
import { useState } from "react";
import { measured, queries } from "~/api/queries";
import type { MeshPeer } from "~/api/types";
import { Table } from "~/components/table";
import { Ago, Badge, Card, cx, Empty, Page, Pending } from "~/components/ui";
import { bytes, duration, plural } from "~/lib/format";
import { useMedia, useTitle } from "~/lib/hooks";
import { layout, reach } from "~/lib/mesh-layout";

export default function Mesh() {
  useTitle("Mesh");
  const mesh = useQuery(measured(queries.mesh(), 5_000)); // paths, latency and bytes
  const [chosen, choose] = useState<string | null>(null);
  const peers = mesh.data?.peers ?? [];
  const online = peers.filter((p) => p.connected).length;
  return (
    <Page title="Mesh" subtitle={mesh.data && `${online} of ${plural(peers.length, "peer")} connected`}>
      <Pending query={mesh} what="mesh" />
      {mesh.data && peers.length === 0 && (
        <Card>
          <Empty icon={<Waypoints />} title="No peers connected">
            Agents of running workspaces, provisioners and computers with an open session are listed here.
          </Empty>
        </Card>
      )}
      {peers.length > 0 && (
        <>
          <Card flush>
            <Picture peers={peers} chosen={chosen} onChoose={choose} />
          </Card>
          <Card flush>
            <Table
              label="Peers"
              rows={peers.map((p) => ({ ...p, ...reach(p, peers) }))}
              id={(p) => p.id}
              row={(p) => ({
                className: chosen === p.id ? "bg-accent-soft" : "",
                onMouseEnter: () => choose(p.id),
                onMouseLeave: () => choose(null),
              })}
              columns={[
                { name: "Peer", cell: (p) => p.name || p.id.slice(0, 8), className: "font-medium" },
                { name: "Kind", cell: (p) => p.kind },
                { name: "Path", cell: (p) => <PeerPath peer={p} /> },
                {
                  name: "Latency",
                  cell: (p) => (p.latency_ms > 0 ? duration(p.latency_ms) : "–"),
                  className: "tabular-nums",
                },
                { name: "Received", cell: (p) => bytes(p.rx_bytes), className: "tabular-nums" },
                { name: "Sent", cell: (p) => bytes(p.tx_bytes), className: "tabular-nums" },
                { name: "Last seen", cell: (p) => <Ago at={p.last_seen} /> },
              ]}
            />
          </Card>
        </>
      )}
    </Page>
  );
}

function PeerPath({ peer: p }: { peer: Pick<MeshPeer, "kind" | "connected" | "path"> }) {
  if (p.kind === "server") return "–";
  if (!p.connected) return <Badge>away</Badge>;
  return <Badge tone={p.path === "direct" ? "ok" : p.path === "relayed" ? "warn" : "plain"}>{p.path}</Badge>;
}

const fills: Record<MeshPeer["kind"], string> = {
  server: "fill-accent",
  agent: "fill-ok",
  provisioner: "fill-warn",
  client: "fill-ink",
};

function Picture({
  peers,
  chosen,
  onChoose,
}: {
  peers: MeshPeer[];
  chosen: string | null;
  onChoose: (id: string | null) => void;
}) {
  const { nodes, lines, width, height } = layout(peers, useMedia("(width < 40rem)"));
  return (
    <>
      <svg
        viewBox={`0 0 ${width} ${height}`}
        className="max-h-[34rem] w-full"
        role="img"
        aria-label={`${plural(peers.length, "peer")} and ${plural(lines.length, "connection")} between them; the table below says the same`}
      >
        {lines.map((l) => (
          <line
            key={l.key}
            x1={l.from.x}
            y1={l.from.y}
            x2={l.to.x}
            y2={l.to.y}
            strokeWidth={chosen && (l.from.peer.id === chosen || l.to.peer.id === chosen) ? 2.5 : 1.25}
            className={cx(
              l.path === "direct"
                ? "stroke-ok"
                : l.path === "relayed"
                  ? "stroke-warn [stroke-dasharray:5_4]"
                  : "stroke-edge [stroke-dasharray:2_4]",
            )}
          />
        ))}
        {nodes.map((n) => (
          <g
            key={n.peer.id}
            onMouseEnter={() => onChoose(n.peer.id)}
            onMouseLeave={() => onChoose(null)}
            opacity={n.peer.connected ? 1 : 0.45}
          >
            <circle
              cx={n.x}
              cy={n.y}
              r={n.peer.kind === "server" ? 11 : 7}
              className={cx(fills[n.peer.kind], chosen === n.peer.id && "stroke-ink stroke-2")}
            />
            {n.labelled && (
              <text
                x={n.x}
                y={n.y + (n.below ? 22 : -14)}
                textAnchor="middle"
                className="fill-ink stroke-panel stroke-4 text-[11px] [paint-order:stroke]"
              >
                {n.peer.name.length > 22 ? `${n.peer.name.slice(0, 21)}…` : n.peer.name}
              </text>
            )}
            <title>{`${n.peer.kind} ${n.peer.name}: ${n.peer.path}${n.peer.latency_ms > 0 ? `, ${duration(n.peer.latency_ms)}` : ""}`}</title>
          </g>
        ))}
      </svg>
      <ul
        className="flex flex-wrap gap-x-5 gap-y-1 border-t border-line px-4 py-2 text-[13px] text-muted"
        aria-label="Legend"
      >
        {(["server", "agent", "provisioner", "client"] as const).map((k) => (
          <li key={k} className="flex items-center gap-1.5">
            <svg viewBox="0 0 10 10" className="size-2.5" aria-hidden>
              <circle cx="5" cy="5" r="5" className={fills[k]} />
            </svg>
            {k}
          </li>
        ))}
        <li className="flex items-center gap-1.5">
          <svg viewBox="0 0 24 4" className="h-1 w-6" aria-hidden>
            <line x2="24" y1="2" y2="2" className="stroke-ok stroke-2" />
          </svg>
          direct
        </li>
        <li className="flex items-center gap-1.5">
          <svg viewBox="0 0 24 4" className="h-1 w-6" aria-hidden>
            <line x2="24" y1="2" y2="2" className="stroke-warn stroke-2 [stroke-dasharray:5_4]" />
          </svg>
          relayed
        </li>
      </ul>
    </>
  );
}
