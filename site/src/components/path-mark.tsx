import type { WorkspaceBuild } from "~/api/types";
import { duration } from "~/lib/format";
import { agentsOf } from "./status";
import { Badge } from "./ui";

// pathOfAgent is how the server reaches an agent, by what the agent has reported.
export function nearest(build: WorkspaceBuild): { region: string; ms: number } | undefined {
  for (const agent of agentsOf(build)) {
    if (agent.status !== "connected") continue;
    const all = Object.entries(agent.latency ?? {});
    const [region, relay] = all.find(([, l]) => l.preferred) ?? all[0] ?? [];
    if (region !== undefined && relay) return { region, ms: relay.latency_ms };
  }
  return undefined;
}

// PathMark is a workspace's connection in a word.
export function PathMark({ build }: { build: WorkspaceBuild }) {
  const connected = build.status === "running" && agentsOf(build).some((a) => a.status === "connected");
  if (!connected) return null;
  const relay = nearest(build);
  return (
    <Badge tone="plain" title={relay ? `Round trip between the agent and its relay (${relay.region})` : "The agent is in the mesh"}>
      {relay ? `relay ${duration(relay.ms)}` : "in the mesh"}
    </Badge>
  );
}
