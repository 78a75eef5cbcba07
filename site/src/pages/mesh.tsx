import { useQuery } from "@tanstack/react-query";
import { Waypoints } from "lucide-react";
import { useState } from "react";
import { measured, queries } from "~/api/queries";
import type { MeshPeer } from "~/api/types";
import { MeshPicture } from "~/components/admin/mesh-picture";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Empty } from "~/components/ui/empty";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import { Table } from "~/components/ui/table";
import { bytes, duration, plural } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { reach } from "~/lib/mesh-layout";

export default function Mesh() {
  useTitle("Mesh");
  const mesh = useQuery(measured(queries.mesh(), 5_000)); // paths, latency and bytes
  const [chosen, choose] = useState<string | null>(null);
  const peers = mesh.data?.peers ?? [];
  const servers = peers.filter((p) => p.kind === "server");
  const several = servers.length > 1;
  const asked = mesh.data?.server_id ?? "";
  const online = peers.filter((p) => p.connected).length;
  return (
    <Page
      title="Mesh"
      subtitle={
        mesh.data &&
        `${online} of ${plural(peers.length, "peer")} connected` +
          (several ? ` · paths and latency as seen from server ${short(asked)}` : "")
      }
    >
      <Pending query={mesh} what="mesh" />
      {mesh.data && peers.length === 0 && (
        <Card>
          <Empty
            icon={<Waypoints />}
            title="No peers connected"
            action={<DocsLink to="connecting">Connecting to a workspace</DocsLink>}
          >
            Agents of running workspaces, provisioners and computers with open sessions appear here.
          </Empty>
        </Card>
      )}
      {peers.length > 0 && (
        <>
          <Card flush>
            <MeshPicture
              peers={several ? peers.map((p) => ({ ...p, name: nameOf(p, several) })) : peers}
              links={mesh.data?.server_links ?? []}
              asked={asked}
              chosen={chosen}
              onChoose={choose}
            />
          </Card>
          {several && (
            <Card title="Links between servers" flush>
              <Table
                label="Links between servers"
                rows={mesh.data?.server_links ?? []}
                id={(l) => l.server_id}
                columns={[
                  { name: "From", cell: () => `server ${short(asked)}`, className: "font-medium" },
                  { name: "To", cell: (l) => `server ${short(l.server_id)}` },
                  {
                    name: "State",
                    cell: (l) => <Badge tone={l.connected ? "ok" : "bad"}>{l.connected ? "up" : "down"}</Badge>,
                  },
                  {
                    name: "Round trip",
                    cell: (l) => (l.latency_ms > 0 ? duration(l.latency_ms) : "–"),
                    className: "tabular-nums",
                  },
                ]}
              />
            </Card>
          )}
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
                { name: "Peer", cell: (p) => nameOf(p, several), className: "font-medium" },
                { name: "Kind", cell: (p) => p.kind },
                ...(several ? [{ name: "Server", cell: (p: MeshPeer) => <PeerServer peer={p} /> }] : []),
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

const short = (id: string) => id.slice(0, 8);

// nameOf tells several servers apart by the beginnings of their ids.
const nameOf = (p: Pick<MeshPeer, "id" | "kind" | "name">, several: boolean) =>
  p.kind === "server" && several ? `server ${short(p.id)}` : p.name || short(p.id);

// PeerServer names the server that a peer is connected to, and the one whose relay it uses if that is another.
function PeerServer({ peer: p }: { peer: Pick<MeshPeer, "kind" | "server_id" | "relay_server_id"> }) {
  if (p.kind === "server") return "–";
  const relay = p.relay_server_id;
  return (
    <code className="text-[13px]">
      {short(p.server_id)}
      {relay && relay !== p.server_id && ` (relay ${short(relay)})`}
    </code>
  );
}

function PeerPath({ peer: p }: { peer: Pick<MeshPeer, "kind" | "connected" | "path"> }) {
  if (p.kind === "server") return "–";
  if (!p.connected) return <Badge>offline</Badge>;
  return <Badge tone={p.path === "direct" ? "ok" : p.path === "relayed" ? "warn" : "plain"}>{p.path}</Badge>;
}
