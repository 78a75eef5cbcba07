import { useQuery } from "@tanstack/react-query";
import { Waypoints } from "lucide-react";
import { useState } from "react";
import { measured, queries } from "~/api/queries";
import type { MeshPeer } from "~/api/types";
import { MeshPicture } from "~/components/mesh-picture";
import { Table } from "~/components/table";
import { Ago, Badge, Card, Empty, Page, Pending } from "~/components/ui";
import { bytes, duration, plural } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { reach } from "~/lib/mesh-layout";

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
            Agents of running workspaces, provisioners and computers with open sessions appear here.
          </Empty>
        </Card>
      )}
      {peers.length > 0 && (
        <>
          <Card flush>
            <MeshPicture peers={peers} chosen={chosen} onChoose={choose} />
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
  if (!p.connected) return <Badge>offline</Badge>;
  return <Badge tone={p.path === "direct" ? "ok" : p.path === "relayed" ? "warn" : "plain"}>{p.path}</Badge>;
}
