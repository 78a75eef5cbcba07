import type { MeshPeer, WorkspaceBuild } from "~/api/types";
import { Badge } from "~/components/ui/badge";
import { agentsOf } from "~/components/ui/status";
import { duration } from "~/lib/format";

// nearest is the relay that an agent reports as its preferred one.
export function nearest(build: WorkspaceBuild): { region: string; ms: number } | undefined {
  for (const agent of agentsOf(build)) {
    if (agent.status !== "connected") continue;
    const all = Object.entries(agent.latency ?? {});
    const [region, relay] = all.find(([, l]) => l.preferred) ?? all[0] ?? [];
    if (region !== undefined && relay) return { region, ms: relay.latency_ms };
  }
  return undefined;
}

// PathMark shows how the server reaches a workspace's agent.
export function PathMark({ build, peer }: { build: WorkspaceBuild; peer: MeshPeer | undefined }) {
  const connected = build.status === "running" && agentsOf(build).some((a) => a.status === "connected");
  if (!connected) return null;
  if (!peer || peer.path === "unknown") return <Badge title="The agent is connected to the mesh">connected</Badge>;
  return (
    <Badge title={`The server is connected to the agent ${peer.path === "direct" ? "directly" : "through a relay"}`}>
      {peer.path}
      {peer.latency_ms > 0 && ` ${duration(peer.latency_ms)}`}
    </Badge>
  );
}
