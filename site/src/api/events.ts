// The event stream. Events name what changed and carry no content: queries on screen are refetched.
import { useEffect } from "react";
import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { address, probe, retryDelay, setLink, whenServed } from "./client";
import type { EventKind } from "./types";

type Kind = Exclude<EventKind, "ready" | "reset">;

// Which answers are out of date when something of a kind has changed, by the first part of their keys.
const touches: Record<Kind, string[]> = {
  workspace: ["workspaces", "mesh"],
  build: ["workspaces", "jobs"],
  agent: ["workspaces", "mesh", "ports", "containers"],
  job: ["jobs", "workspaces", "templates", "provisioners", "health"],
  template: ["templates"],
  provisioner: ["provisioners", "jobs", "mesh", "health"],
  user: ["users", "me", "external-auth", "organizations"],
  inbox: ["inbox"],
};

const kinds = Object.keys(touches) as Kind[];

// Changes within this time cause one refetch. ms
const gather = 150;

function follow(client: QueryClient): () => void {
  let source: EventSource | undefined;
  let tries = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let gathering: ReturnType<typeof setTimeout> | undefined;
  const stale = new Set<string>();

  const changed = (kind: Kind) => {
    for (const key of touches[kind]) stale.add(key);
    gathering ??= setTimeout(() => {
      gathering = undefined;
      for (const key of stale) void client.invalidateQueries({ queryKey: [key] });
      stale.clear();
    }, gather);
  };

  const open = () => {
    source = new EventSource(address("GET events"));
    source.addEventListener("ready", () => {
      setLink({ server: "ok" });
      // Catch up with changes that the stream did not report, because it was down or the page was loading.
      if (tries > 0) void client.invalidateQueries();
      else kinds.forEach(changed);
      tries = 0;
    });
    // The server has dropped events.
    source.addEventListener("reset", () => void client.invalidateQueries());
    for (const kind of kinds) source.addEventListener(kind, () => changed(kind));
    source.onerror = () => {
      source?.close();
      timer = setTimeout(open, retryDelay(tries++));
      if (tries > 1) void probe(); // an EventSource gives no reason for its end
    };
  };

  const reopen = () => {
    if (source?.readyState !== EventSource.CLOSED) return;
    clearTimeout(timer);
    open();
  };
  // A tab that wakes up reconnects at once.
  const wake = () => {
    if (document.visibilityState !== "hidden") reopen();
  };

  open();
  const ended = whenServed(reopen);
  document.addEventListener("visibilitychange", wake);
  window.addEventListener("online", wake);
  return () => {
    ended();
    source?.close();
    clearTimeout(timer);
    clearTimeout(gathering);
    document.removeEventListener("visibilitychange", wake);
    window.removeEventListener("online", wake);
  };
}

// useEvents keeps what is on screen fresh while the user is signed in.
export function useEvents() {
  const client = useQueryClient();
  useEffect(() => follow(client), [client]);
}
