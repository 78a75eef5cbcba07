// Which region is near: the list of the server, the latency to each, and the user's choice. Pages load this after they
// have shown themselves.
import { get } from "~/api/client";
import type { Region as Listed } from "~/api/types";
import type { Region } from "./region";

export interface Place extends Region {
  healthy: boolean;
  own: boolean; // the server's
}

export const automatic = "automatic";

const chosenKey = "region"; // the id of the region that the user has chosen
const nearestKey = "region-nearest"; // the id of the one that was nearest when this browser last measured
const measureTimeout = 2000; // ms
const samples = 2;

function read(key: string): string {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

function store(key: string, value: string) {
  try {
    if (value === "") localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // Without storage the choice holds for this page.
  }
}

let chosenHere = automatic;
export const chosen = () => read(chosenKey) || chosenHere;
export function choose(id: string) {
  chosenHere = id;
  store(chosenKey, id === automatic ? "" : id);
}

// places turns the server's list into where this page can open something. Its first entry is the server. A proxy that
// only relays has the server's address.
export function places(list: readonly Listed[]): Place[] {
  const server = list[0];
  return list
    .filter((r, i) => i === 0 || r.path_app_url !== server?.path_app_url || !r.healthy)
    .map((r, i) => ({
      id: r.id,
      name: r.display_name || r.name,
      url: i === 0 ? location.origin : r.path_app_url.replace(/\/$/, ""),
      wildcard: r.wildcard_hostname,
      healthy: r.healthy,
      own: i === 0,
    }));
}

export const listPlaces = async (signal?: AbortSignal) => places((await get("regions", { signal })).regions);

// latency is the round trip to a place in ms, and undefined if it does not answer. The first request opens the
// connection, so the fastest one counts.
async function latency(place: Place): Promise<number | undefined> {
  let best: number | undefined;
  const signal = AbortSignal.timeout(measureTimeout);
  try {
    for (let i = 0; i < samples; i++) {
      const began = performance.now();
      const answer = await fetch(`${place.url}/latency-check`, { cache: "no-store", credentials: "omit", signal });
      if (!answer.ok) return undefined;
      const took = performance.now() - began;
      best = Math.min(best ?? took, took);
    }
  } catch {
    return best; // it was too slow, or cannot be reached
  }
  return best;
}

export type Latencies = ReadonlyMap<string, number>;

export async function measure(list: readonly Place[]): Promise<Latencies> {
  const healthy = list.filter((p) => p.healthy);
  const found = await Promise.all(healthy.map(async (p) => [p.id, await latency(p)] as const));
  return new Map(found.filter((entry): entry is [string, number] => entry[1] !== undefined));
}

// pick returns the place that the user has chosen, or else the nearest. A place that is not healthy or did not answer
// is never picked: the server takes its place.
export function pick(list: readonly Place[], latencies: Latencies): Place | undefined {
  const usable = list.filter((p) => p.own || (p.healthy && latencies.has(p.id)));
  const wanted = usable.find((p) => p.id === chosen());
  if (wanted || chosen() !== automatic) return wanted ?? usable.find((p) => p.own);
  const near = (p: Place) => latencies.get(p.id) ?? Infinity;
  return usable.toSorted((a, b) => near(a) - near(b))[0];
}

export const remember = (place: Place) => store(nearestKey, place.id);

// terminalPlace returns where to open a terminal now: it trusts the last measurement, so that the terminal need not
// wait for one. null is the server.
export async function terminalPlace(): Promise<Region | null> {
  const list = await listPlaces();
  if (list.length < 2) return null;
  const id = chosen() === automatic ? read(nearestKey) : chosen();
  let place = list.find((p) => p.id === id && p.healthy);
  if (!place && chosen() === automatic) {
    place = pick(list, await measure(list));
    if (place) remember(place);
  }
  return place && !place.own ? place : null;
}
