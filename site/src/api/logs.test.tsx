// @vitest-environment jsdom
import { act, cleanup, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { setLink } from "./client";
import { useBuildLog } from "./logs";

// The websockets that were opened, in order.
let sockets: Socket[];
class Socket {
  readonly url: string;
  onopen?: () => void;
  onmessage?: (event: { data: string }) => void;
  onclose?: (event: { code: number }) => void;
  constructor(url: URL) {
    this.url = String(url);
    sockets.push(this);
  }
  close() {}
}

type Stored = { id: number; output: string };
let stored: Stored[]; // the log at the server
let reading: (() => void)[]; // answers the requests for the log

beforeEach(() => {
  sockets = [];
  stored = [{ id: 1, output: "first" }];
  reading = [];
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  vi.stubGlobal("WebSocket", Socket);
  vi.stubGlobal("fetch", () => {
    const seen = JSON.stringify(stored); // what the server had when it was asked
    return new Promise<Response>((resolve) => reading.push(() => resolve(new Response(seen))));
  });
});
afterEach(() => {
  cleanup();
  setLink({ server: "ok" });
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function Page({ done }: { done: boolean }) {
  const { lines, state } = useBuildLog("b", done);
  return (
    <p>
      {state}: {lines.map((l) => l.output).join(" ")}
    </p>
  );
}

const settle = () => act(async () => void (await Promise.resolve()));
const shows = (text: string) => vi.waitFor(() => expect(screen.getByText(text)).toBeTruthy());

async function answer() {
  reading.shift()!();
  await settle();
}

it("follows a log whose build ends while it is read, to its end", async () => {
  const { rerender } = render(<Page done={false} />);
  stored.push({ id: 2, output: "last" });
  rerender(<Page done />); // the page learns of the end before the log has arrived
  await answer();
  await shows("following: first");
  expect(sockets[0]!.url).toContain("after=1");
  act(() => {
    sockets[0]!.onmessage!({ data: JSON.stringify(stored[1]) });
    sockets[0]!.onclose!({ code: 1000 });
  });
  await shows("ended: first last");
});

it("only reads the log of a build that has ended", async () => {
  render(<Page done />);
  await answer();
  await shows("ended: first");
  expect(sockets).toHaveLength(0);
});

it("goes on at once when the server serves again, however long it was away", async () => {
  render(<Page done={false} />);
  await answer();
  await shows("following: first");
  // The pauses grow.
  for (let n = 1; n < 8; n++) {
    act(() => sockets.at(-1)!.onclose!({ code: 1006 }));
    await shows("lost: first");
    act(() => void vi.runOnlyPendingTimers());
    expect(sockets).toHaveLength(n + 1);
  }
  act(() => setLink({ server: "lost" }));
  act(() => sockets.at(-1)!.onclose!({ code: 1006 }));
  expect(sockets).toHaveLength(8);
  act(() => setLink({ server: "ok" }));
  expect(sockets).toHaveLength(9);
  act(() => void vi.runOnlyPendingTimers()); // what it waited for before
  expect(sockets).toHaveLength(9);
  act(() => {
    sockets[8]!.onopen!();
    sockets[8]!.onmessage!({ data: JSON.stringify([{ id: 2, output: "meanwhile" }]) });
    sockets[8]!.onclose!({ code: 1000 });
  });
  await shows("ended: first meanwhile");
});
