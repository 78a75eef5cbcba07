// @vitest-environment jsdom
import { QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { setLink } from "./client";
import { useEvents } from "./events";

// The event streams that were opened, in order.
let streams: Stream[];
class Stream extends EventTarget {
  static readonly CLOSED = 2;
  readyState = 1;
  onerror?: () => void;
  constructor() {
    super();
    streams.push(this);
  }
  close() {
    this.readyState = Stream.CLOSED;
  }
  say(kind: string) {
    this.dispatchEvent(new Event(kind));
  }
}

let agent: string; // its status at the server
let asked: number; // how often the page has asked for it
beforeEach(() => {
  streams = [];
  agent = "connecting";
  asked = 0;
  vi.stubGlobal("EventSource", Stream);
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function ask() {
  asked++;
  return Promise.resolve(agent);
}

function Page() {
  useEvents();
  const { data } = useQuery({ queryKey: ["workspaces"], queryFn: ask, staleTime: Infinity });
  return <p>{data}</p>;
}

const show = () =>
  render(
    <QueryClientProvider client={new QueryClient()}>
      <Page />
    </QueryClientProvider>,
  );

it("shows what changed after the page asked and before the stream was open", async () => {
  show();
  await screen.findByText("connecting");
  agent = "connected"; // the server reports it to open streams only
  streams[0]!.say("ready");
  await screen.findByText("connected");
});

it("shows what changed while the stream was down", async () => {
  show();
  await screen.findByText("connecting");
  streams[0]!.say("ready");
  await vi.waitFor(() => expect(asked).toBe(2));
  streams[0]!.onerror!();
  agent = "connected";
  await vi.waitFor(() => expect(streams).toHaveLength(2), 5000);
  streams[1]!.say("ready");
  await screen.findByText("connected");
});

it("opens the stream at once when the server serves again", async () => {
  show();
  await screen.findByText("connecting");
  setLink({ server: "lost" });
  vi.useFakeTimers();
  try {
    streams[0]!.onerror!();
    expect(streams).toHaveLength(1);
    setLink({ server: "ok" });
    expect(streams).toHaveLength(2);
    vi.runOnlyPendingTimers(); // what it waited for before
    expect(streams).toHaveLength(2);
  } finally {
    vi.useRealTimers();
  }
});

it("shows what a stream reports", async () => {
  show();
  await screen.findByText("connecting");
  streams[0]!.say("ready");
  await vi.waitFor(() => expect(asked).toBe(2));
  agent = "connected";
  streams[0]!.say("agent");
  await screen.findByText("connected");
});
