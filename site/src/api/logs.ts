// Growing logs: the existing lines first, then a websocket that resumes after the last line.
import { useEffect, useRef, useState } from "react";
import { get, retryDelay, socket } from "./client";
import type { AgentLog, JobLog } from "./types";

export interface Followed<T> {
  lines: T[];
  state: "loading" | "following" | "ended" | "lost";
}

// useLog follows the log at a path. Each message is a line or a list of lines. If done, the log no longer grows and is
// only read.
function useLog<T extends { id: number }>(path: string | undefined, done: boolean): Followed<T> {
  const [log, setLog] = useState<Followed<T>>({ lines: [], state: "loading" });
  const finished = useRef(done); // a log that ends while it is followed is followed to its end
  finished.current = done;
  useEffect(() => {
    if (!path) return;
    const lines: T[] = [];
    let ws: WebSocket | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let frame = 0;
    let tries = 0;
    const stop = new AbortController();
    const show = (state: Followed<T>["state"]) => setLog({ lines: lines.slice(), state });
    const last = () => lines.at(-1)?.id ?? 0;

    // Show the messages of one frame together: there may be thousands.
    const take = (more: T | T[]) => {
      for (const line of Array.isArray(more) ? more : [more]) if (line.id > last()) lines.push(line);
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
    const follow = () => {
      ws = socket(`${path}?follow&after=${last()}`);
      ws.onmessage = (event: MessageEvent<string>) => {
        tries = 0;
        take(JSON.parse(event.data) as T | T[]);
      };
      ws.onopen = () => show("following");
      ws.onclose = (event) => {
        if (stop.signal.aborted) return;
        if (event.code === 1000) return end("ended");
        end("lost");
        timer = setTimeout(follow, retryDelay(tries++));
      };
    };
    const start = async () => {
      try {
        const first = await get<T[]>(`${path}?after=${last()}`, stop.signal);
        for (const line of first) lines.push(line);
        if (finished.current) return end("ended");
        show("following");
        follow();
      } catch {
        if (stop.signal.aborted) return;
        show("lost");
        timer = setTimeout(start, retryDelay(tries++));
      }
    };
    setLog({ lines: [], state: "loading" });
    void start();
    return () => {
      stop.abort();
      ws?.close();
      clearTimeout(timer);
      cancelAnimationFrame(frame);
    };
  }, [path]);
  return log;
}

export const useBuildLog = (build: string | undefined, done: boolean) =>
  useLog<JobLog>(build && `workspacebuilds/${build}/logs`, done);
export const useVersionLog = (version: string | undefined, done: boolean) =>
  useLog<JobLog>(version && `templateversions/${version}/logs`, done);
export const useAgentLog = (agent: string | undefined, done: boolean) =>
  useLog<AgentLog>(agent && `workspaceagents/${agent}/logs`, done);
