// @vitest-environment jsdom
// What a terminal reports of its connection, by websockets that the test opens and cuts.
import type { Terminal } from "@xterm/xterm";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

vi.mock("@xterm/xterm", () => ({ Terminal: class {} }));
vi.mock("./regions", () => ({ terminalPlace: () => Promise.resolve(null) }));

import { attach, type Report } from "./terminal";

class Socket {
  static made: Socket[] = [];
  static readonly OPEN = 1;
  readyState = 0;
  onopen = () => {};
  onmessage: (event: { data: string }) => void = () => {};
  onclose: (event: { code: number; reason: string }) => void = () => {};
  constructor() {
    Socket.made.push(this);
  }
  close() {}
}

const listens = () => ({ dispose: () => {} });
const terminal = {
  rows: 24,
  cols: 80,
  onData: listens,
  onBinary: listens,
  onResize: listens,
  reset: () => {},
  write: () => {},
} as unknown as Terminal;

beforeEach(() => {
  Socket.made = [];
  vi.stubGlobal("WebSocket", Socket);
  vi.stubGlobal("fetch", () => Promise.resolve(new Response("{}")));
});
afterEach(() => vi.unstubAllGlobals());

it("says whether there has been a session", async () => {
  const reports: Report[] = [];
  const session = attach(terminal, { agent: "a", id: "s", command: null }, (r) => reports.push(r), String);
  const next = (n: number) => vi.waitFor(() => expect(Socket.made.length).toBe(n));
  const last = () => reports.at(-1);
  try {
    await next(1);
    Socket.made[0]!.onclose({ code: 1006, reason: "" });
    expect(last()).toMatchObject({ state: "lost", seen: false });
    session.again();
    await next(2);
    Socket.made[1]!.onmessage({ data: "$ " });
    expect(last()).toMatchObject({ state: "open", seen: true });
    Socket.made[1]!.onclose({ code: 1006, reason: "" });
    expect(last()).toMatchObject({ state: "lost", seen: true });
    session.again();
    await next(3);
    Socket.made[2]!.onmessage({ data: "$ " });
    Socket.made[2]!.onclose({ code: 1000, reason: "" });
    expect(last()).toMatchObject({ state: "ended", seen: false });
  } finally {
    session.close();
  }
});
