import type { ReactNode } from "react";
import type { MeshPeer, MeshServerLink, PeerPath } from "~/api/types";
import { cx } from "~/components/ui/cx";
import { duration, plural } from "~/lib/format";
import { useMedia } from "~/lib/hooks";
import { layout } from "~/lib/mesh-layout";

const fills: Record<MeshPeer["kind"], string> = {
  server: "fill-accent",
  agent: "fill-ok",
  provisioner: "fill-warn",
  client: "fill-ink",
};

const strokes: Record<PeerPath, string> = {
  direct: "stroke-ok",
  relayed: "stroke-warn [stroke-dasharray:5_4]",
  unknown: "stroke-edge [stroke-dasharray:2_4]",
};

const describe = (p: MeshPeer) =>
  `${p.kind} ${p.name}: ${p.path}${p.latency_ms > 0 ? `, ${duration(p.latency_ms)}` : ""}`;

// MeshPicture draws peers and the connections between them.
export function MeshPicture({
  peers,
  links = [],
  asked = "",
  chosen,
  onChoose,
}: {
  peers: MeshPeer[];
  links?: MeshServerLink[]; // of the server that was asked
  asked?: string;
  chosen: string | null;
  onChoose: (id: string | null) => void;
}) {
  const { nodes, lines, width, height } = layout(peers, useMedia("(width < 40rem)"));
  const here = nodes.find((n) => n.peer.id === asked);
  return (
    <>
      <svg
        viewBox={`0 0 ${width} ${height}`}
        className="max-h-[34rem] w-full"
        role="img"
        aria-label={`${plural(peers.length, "peer")} with ${plural(lines.length, "connection")}: see the table below`}
      >
        {lines.map((l) => (
          <line
            key={l.key}
            x1={l.from.x}
            y1={l.from.y}
            x2={l.to.x}
            y2={l.to.y}
            strokeWidth={chosen && (l.from.peer.id === chosen || l.to.peer.id === chosen) ? 2.5 : 1.25}
            className={strokes[l.path]}
          />
        ))}
        {links.map((l) => {
          const to = nodes.find((n) => n.peer.id === l.server_id);
          return (
            here &&
            to && (
              <line
                key={l.server_id}
                x1={here.x}
                y1={here.y}
                x2={to.x}
                y2={to.y}
                strokeWidth={2}
                className={l.connected ? "stroke-accent" : "stroke-bad [stroke-dasharray:2_4]"}
              />
            )
          );
        })}
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
                {n.peer.name.length > 34 ? `${n.peer.name.slice(0, 33)}…` : n.peer.name}
              </text>
            )}
            <title>{describe(n.peer)}</title>
          </g>
        ))}
      </svg>
      <ul
        className="flex flex-wrap gap-x-5 gap-y-1 border-t border-line px-4 py-2 text-[13px] text-muted"
        aria-label="Legend"
      >
        {(["server", "agent", "provisioner", "client"] as const).map((kind) => (
          <LegendItem key={kind} name={kind} box="0 0 10 10" className="size-2.5">
            <circle cx="5" cy="5" r="5" className={fills[kind]} />
          </LegendItem>
        ))}
        {(["direct", "relayed"] as const).map((path) => (
          <LegendItem key={path} name={path} box="0 0 24 4" className="h-1 w-6">
            <line x2="24" y1="2" y2="2" className={cx("stroke-2", strokes[path])} />
          </LegendItem>
        ))}
      </ul>
    </>
  );
}

interface LegendItemProps {
  name: string;
  box: string;
  className: string;
  children: ReactNode;
}

const LegendItem = ({ name, box, className, children }: LegendItemProps) => (
  <li className="flex items-center gap-1.5">
    <svg viewBox={box} className={className} aria-hidden>
      {children}
    </svg>
    {name}
  </li>
);
