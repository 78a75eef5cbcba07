// The region proxy that this page opens apps and terminals at. Until regions.ts has measured, and whenever none is
// nearer or healthy, that is the server: null.
import { useSyncExternalStore } from "react";

export interface Region {
  id: string;
  name: string; // for people
  url: string; // of apps by path and of terminals
  wildcard: string; // the pattern of the hosts of apps; "" for none
}

let current: Region | null = null;
const listeners = new Set<() => void>();

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export function setRegion(region: Region | null) {
  if (JSON.stringify(region) === JSON.stringify(current)) return;
  current = region;
  for (const listener of listeners) listener();
}

export const useRegion = () => useSyncExternalStore(subscribe, () => current);
