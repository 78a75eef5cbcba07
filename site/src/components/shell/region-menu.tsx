// The choice of the region at which this page opens apps and terminals. It is not shown if there is the server only.
import { useQuery } from "@tanstack/react-query";
import { Check, Globe } from "lucide-react";
import { useEffect, useState } from "react";
import { IconButton } from "~/components/ui/icon-button";
import { Item, Menu, MenuLabel, Separator } from "~/components/ui/menu";
import { setRegion } from "~/lib/region";
import { automatic, choose, chosen, listPlaces, measure, pick, remember, type Place } from "~/lib/regions";

const lookEvery = 15_000; // ms: no event announces that a region is lost
const none: Place[] = [];

export default function RegionMenu() {
  const list = useQuery({
    queryKey: ["regions"],
    queryFn: ({ signal }) => listPlaces(signal),
    refetchInterval: (query) => ((query.state.data?.length ?? 0) > 1 ? lookEvery : false),
    refetchOnWindowFocus: true,
  });
  const places = list.data ?? none;
  const several = places.length > 1;
  const latencies = useQuery({
    queryKey: ["regions", "latency", places.map((p) => `${p.id} ${p.url} ${p.healthy}`)],
    queryFn: () => measure(places),
    enabled: several,
    refetchInterval: lookEvery,
  }).data;
  const [choice, setChoice] = useState(chosen);
  const used = several && latencies ? pick(places, latencies) : undefined;
  useEffect(() => {
    setRegion(used && !used.own ? { id: used.id, name: used.name, url: used.url, wildcard: used.wildcard } : null);
    if (used && choice === automatic) remember(used);
  });
  if (!several) return null;
  const select = (id: string) => {
    choose(id);
    setChoice(id);
  };
  const mark = (id: string) => (choice === id ? <Check /> : <span className="size-4" />);
  const state = (p: Place) => {
    const ms = latencies?.get(p.id);
    if (!p.healthy) return "unavailable";
    if (ms === undefined) return latencies ? "unreachable" : "…";
    return `${Math.max(1, Math.round(ms))} ms`;
  };
  return (
    <Menu
      trigger={
        <IconButton label={`Region: ${used?.name ?? "Default"}`}>
          <Globe />
        </IconButton>
      }
    >
      <MenuLabel>Apps and terminals open at</MenuLabel>
      <Item icon={mark(automatic)} onSelect={() => select(automatic)}>
        Nearest region
      </Item>
      <Separator />
      {places.map((p) => (
        <Item key={p.id} icon={mark(p.id)} disabled={!p.healthy} onSelect={() => select(p.id)}>
          <span className={p.id === used?.id ? "font-medium" : undefined}>{p.name}</span>
          <span className="ml-auto pl-4 text-muted">{state(p)}</span>
        </Item>
      ))}
    </Menu>
  );
}
