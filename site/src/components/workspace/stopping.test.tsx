// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Workspace } from "~/api/types";
import { Announced } from "./consequences";
import { Stopping } from "./stopping";

const patience = { timeout: 30_000 }; // of a busy machine

const start = Date.parse("2026-11-30T12:00:00Z");
const after = (seconds: number) => new Date(start + seconds * 1000).toISOString();

let asked: { route: string; body: unknown }[];
let before: object;

beforeEach(() => {
  vi.useFakeTimers({ now: start, toFake: ["Date", "setInterval", "clearInterval"] });
  asked = [];
  vi.stubGlobal("fetch", (path: string, { method, body }: RequestInit) => {
    asked.push({ route: `${method} ${path.replace("/api/v2/", "")}`, body: body && JSON.parse(body as string) });
    return Promise.resolve(Response.json(before));
  });
});
afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const workspace = (more: object) =>
  ({
    id: "w",
    dormant_at: null,
    owner_name: "ada",
    name: "dev",
    permissions: { update: true },
    consequences: [],
    ...more,
  }) as unknown as Workspace;

const show = (page: React.ReactNode) => {
  const client = new QueryClient();
  const whole = (child: React.ReactNode) => <QueryClientProvider client={client}>{child}</QueryClientProvider>;
  const { rerender } = render(whole(page));
  return (child: React.ReactNode) => rerender(whole(child));
};

const stops = (seconds: number, more: object = {}) =>
  workspace({
    latest_build: { status: "running", deadline: after(seconds) },
    consequences: [{ action: "stop", at: after(seconds), announce_at: null, explanation: "Stops soon." }],
    ...more,
  });

it("counts down to a stop, also one that the template does not announce, and postpones it", async () => {
  const again = show(<Announced workspace={stops(3600)} />);
  expect(screen.queryByRole("status")).toBeNull();
  again(<Announced workspace={stops(300)} />);
  expect(screen.getByRole("status").textContent).toMatch(/^Stops soon\.5 min left\. Running programs end then\./);
  act(() => void vi.advanceTimersByTime(61_000));
  expect(screen.getByRole("status").textContent).toMatch(/3 min 59 s left/);
  before = {};
  fireEvent.click(screen.getByRole("button", { name: "Extend by 1 hour" }));
  await vi.waitFor(
    () => expect(asked).toEqual([{ route: "PUT workspaces/w/extend", body: { deadline: after(300 + 3600) } }]),
    patience,
  );
});

it("offers no more time to those who may not change the workspace", () => {
  show(<Announced workspace={stops(300, { permissions: { update: false } })} />);
  screen.getByText(/5 min left/);
  expect(screen.queryByRole("button")).toBeNull();
});

it("does not say of a dormant workspace when it stops", () => {
  show(<Announced workspace={stops(300, { dormant_at: after(-60) })} />);
  expect(screen.queryByRole("status")).toBeNull();
});

it("counts down the time of stop scripts while a stop runs", async () => {
  const agent = (name: string, lifecycle_state: string) => ({ id: name, name, lifecycle_state });
  before = { resources: [{ agents: [agent("main", "shutting_down"), agent("aside", "off")] }] };
  const stopping = (status: string) =>
    workspace({
      latest_build: { transition: "stop", build_number: 2, job: { status, started_at: after(-30) } },
    });
  const again = show(<Stopping workspace={stopping("running")} />);
  const note = await vi.waitFor(() => screen.getByRole("status"), patience);
  expect(note.textContent).toMatch(/^Stop scripts run: main1 min 30 s left at most\./);
  expect(asked.map(({ route }) => route)).toEqual(["GET users/ada/workspace/dev/builds/1"]);
  again(<Stopping workspace={stopping("succeeded")} />);
  expect(screen.queryByRole("status")).toBeNull();
});
