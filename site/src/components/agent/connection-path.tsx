import { useQuery } from "@tanstack/react-query";
import { measured, queries } from "~/api/queries";
import type { MeshClient, Workspace, WorkspaceAgent } from "~/api/types";
import { Ago } from "~/components/ui/ago";
import { ErrorNote } from "~/components/ui/error-note";
import { bytes, duration } from "~/lib/format";
import { nearest } from "./path-mark";

// ConnectionPath draws the direct and the relayed path from the user's computers to an agent.
export function ConnectionPath({ workspace, agent }: { workspace: Workspace; agent: WorkspaceAgent }) {
  const mesh = useQuery(measured(queries.mesh(), 10_000));
  const peers = mesh.data?.peers ?? [];
  const peer = peers.find((p) => p.id === agent.id);
  const clients = peer?.clients ?? [];
  const relay = nearest(workspace.latest_build);
  const up = agent.status === "connected";
  const nearestClient =
    clients.find((c) => c.path === "direct") ?? clients.find((c) => c.path === "relayed") ?? clients[0];
  const direct = up && nearestClient?.path === "direct";
  const relayed = up && nearestClient?.path === "relayed";
  const text = describe(up, nearestClient, relay?.ms);
  const line = (on: boolean) => (on ? "stroke-ok" : "stroke-edge [stroke-dasharray:4_4]");
  return (
    <div className="flex flex-col gap-3">
      <ErrorNote error={mesh.error} />
      <svg viewBox="0 0 520 130" className="w-full max-w-xl" role="img" aria-label={text}>
        <path d="M100 95 H420" className={line(direct)} strokeWidth="2" fill="none" />
        <path d="M112 77 L230 32 M290 32 L408 77" className={line(relayed)} strokeWidth="2" fill="none" />
        <Node x={60} y={95} label="Your computer" note={clients.length ? `${clients.length} connected` : ""} />
        <Node x={260} y={30} label="Relay" note={relay ? relay.region : ""} />
        <Node
          x={460}
          y={95}
          label={agent.name}
          note={peer && peer.latency_ms > 0 ? duration(peer.latency_ms) : relay ? duration(relay.ms) : ""}
        />
        <text x="260" y="112" textAnchor="middle" className="fill-muted text-[11px]">
          {direct ? "direct" : "direct, if the networks allow"}
        </text>
      </svg>
      <p className="text-[13px] text-muted">
        {text}
        {peer && (
          <>
            {" "}
            The server has sent it {bytes(peer.tx_bytes)} and received {bytes(peer.rx_bytes)}. Last seen{" "}
            <Ago at={peer.last_seen} />.
          </>
        )}{" "}
        <code>coder ping {workspace.name}</code> shows the path from this computer.
      </p>
    </div>
  );
}

function describe(up: boolean, client: MeshClient | undefined, relay: number | undefined): string {
  if (!up) return "The agent is not connected to the mesh.";
  const trip = client && client.latency_ms > 0 ? `, ${duration(client.latency_ms)} away` : "";
  switch (client?.path) {
    case "direct":
      return `Your computer is connected directly to the agent${trip}.`;
    case "relayed":
      return `Your computer is connected to the agent through a relay${trip}.`;
    case "unknown":
      return "There is no recent traffic between your computer and the agent.";
  }
  const away = relay === undefined ? "" : `, ${duration(relay)} from its relay`;
  return `The agent is connected to the mesh${away}. None of your computers is connected to it.`;
}

function Node({ x, y, label, note }: { x: number; y: number; label: string; note: string }) {
  return (
    <g>
      <circle cx={x} cy={y} r="7" className="fill-accent" />
      <text x={x} y={y - 14} textAnchor="middle" className="fill-ink text-[12px] font-medium">
        {label.length > 18 ? `${label.slice(0, 17)}…` : label}
      </text>
      <text x={x} y={y + 22} textAnchor="middle" className="fill-muted text-[11px]">
        {note}
      </text>
    </g>
  );
}
