// Growing logs: the existing lines first, then a websocket that resumes after the last line.
import { useEffect, useRef, useState } from "react";
import { address, get, retryDelay, socket, whenServed } from "./client";
import type { AgentLog, JobLog } from "./types";

export interface Followed<T> {
  lines: T[];
  state: "loading" | "following" | "ended" | "lost";
}

// Log is a kind of log: how to read what follows a line, and where a websocket continues from there.
interface Log<T> {
  read: (id: string, after: number, signal: AbortSignal) => Promise<T[]>;
  follow: (id: string, after: number) => string;
}

const ofBuilds: Log<JobLog> = {
  read: (workspacebuild, after, signal) =>
    get("workspacebuilds/{workspacebuild}/logs", { workspacebuild, query: { after }, signal }),
  follow: (workspacebuild, after) =>
    address("GET workspacebuilds/{workspacebuild}/logs", { workspacebuild, query: { follow: true, after } }),
};

const ofVersions: Log<JobLog> = {
  read: (templateversion, after, signal) =>
    get("templateversions/{templateversion}/logs", { templateversion, query: { after }, signal }),
  follow: (templateversion, after) =>
    address("GET templateversions/{templateversion}/logs", { templateversion, query: { follow: true, after } }),
};

const ofAgents: Log<AgentLog> = {
  read: (workspaceagent, after, signal) =>
    get("workspaceagents/{workspaceagent}/logs", { workspaceagent, query: { after }, signal }),
  follow: (workspaceagent, after) =>
    address("GET workspaceagents/{workspaceagent}/logs", { workspaceagent, query: { follow: true, after } }),
};

// useLog follows the log of what has the id. Each message is a line or a list of lines. If done, the log no longer
// grows and is only read.
function useLog<T extends { id: number; output: string }>(
  of: Log<T>,
  id: string | undefined,
  done: boolean,
): Followed<T> {
  const [log, setLog] = useState<Followed<T>>({ lines: [], state: "loading" });
  const finished = useRef(done); // a log that ends while it is followed is followed to its end
  finished.current = done;
  useEffect(() => {
    if (!id) return;
    const lines: T[] = [];
    let ws: WebSocket | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let retry: (() => void) | undefined; // what the timer is for
    let frame = 0;
    let tries = 0;
    const stop = new AbortController();
    const show = (state: Followed<T>["state"]) => setLog({ lines: lines.slice(), state });
    const last = () => lines.at(-1)?.id ?? 0;

    // What the server tells only those who follow has the id of the line before it: why the log has stopped.
    const isNew = (line: T) => line.id > last() || (line.id === last() && line.output !== lines.at(-1)?.output);
    // Show the messages of one frame together: there may be thousands.
    const take = (more: T | T[]) => {
      for (const line of Array.isArray(more) ? more : [more]) if (isNew(line)) lines.push(line);
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        show("following");
      });
    };
    const end = (state: Followed<T>["state"]) => {
      cancelAnimationFrame(frame);
      frame = 0;
      show(state);
    };
    const go = () => {
      clearTimeout(timer);
      const next = retry;
      retry = undefined;
      next?.();
    };
    const later = (next: () => void) => {
      retry = next;
      timer = setTimeout(go, retryDelay(tries++));
    };
    const follow = () => {
      ws = socket(of.follow(id, last()));
      ws.onmessage = (event: MessageEvent<string>) => {
        tries = 0;
        take(JSON.parse(event.data) as T | T[]);
      };
      ws.onopen = () => show("following");
      ws.onclose = (event) => {
        if (stop.signal.aborted) return;
        if (event.code === 1000) return end("ended");
        end("lost");
        later(follow);
      };
    };
    const start = async () => {
      const whole = finished.current; // one that ends while it is read has more lines
      try {
        const first = await of.read(id, last(), stop.signal);
        for (const line of first) lines.push(line);
        if (whole) return end("ended");
        show("following");
        follow();
      } catch {
        if (stop.signal.aborted) return;
        show("lost");
        later(() => void start());
      }
    };
    setLog({ lines: [], state: "loading" });
    void start();
    const unheard = whenServed(go); // at once, however long the next try would have waited
    return () => {
      unheard();
      stop.abort();
      ws?.close();
      clearTimeout(timer);
      cancelAnimationFrame(frame);
    };
  }, [of, id]);
  return log;
}

export const useBuildLog = (build: string | undefined, done: boolean) => useLog(ofBuilds, build, done);
export const useVersionLog = (version: string | undefined, done: boolean) => useLog(ofVersions, version, done);
export const useAgentLog = (agent: string | undefined, done: boolean) => useLog(ofAgents, agent, done);
