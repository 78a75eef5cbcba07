// @vitest-environment jsdom
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import type { Workspace } from "~/api/types";
import { Announced, Consequences, Dormancy } from "./consequences";

afterEach(cleanup);

const later = (hours: number) => new Date(Date.now() + hours * 3_600_000).toISOString();

const workspace = (more: object) =>
  ({
    dormant_at: null,
    deleting_at: null,
    owner_name: "ada",
    name: "dev",
    permissions: { update: true },
    consequences: [],
    latest_build: { status: "running", explanation: "", job: { status: "succeeded" } },
    ...more,
  }) as unknown as Workspace;

const stop = (announce: number) => ({
  action: "stop",
  at: later(2),
  announce_at: later(announce),
  explanation: "Stops today.",
});

it("lists what comes next, and makes what is announced stand out", () => {
  const both = (announce: number) => {
    const w = workspace({ consequences: [stop(announce)] });
    return (
      <>
        <Announced workspace={w} />
        <Consequences workspace={w} />
      </>
    );
  };
  const { rerender } = render(both(1));
  expect(screen.getByRole("listitem").textContent).toMatch(/^Stops today\..* your time, in 2 h$/);
  expect(screen.queryByRole("status")).toBeNull();
  rerender(both(-1));
  expect(screen.getByRole("status").textContent).toMatch(/^Stops today\./);
  expect(screen.queryByRole("listitem")).toBeNull();
});

it("explains the last automatic build, and shows nothing during a build", () => {
  const build = { status: "stopped", explanation: "Stopped because it is dormant.", job: { status: "succeeded" } };
  const { rerender } = render(<Consequences workspace={workspace({ latest_build: build })} />);
  screen.getByText("Stopped because it is dormant.");
  rerender(<Consequences workspace={workspace({ latest_build: { ...build, status: "stopping" } })} />);
  expect(screen.queryByText("Stopped because it is dormant.")).toBeNull();
});

it("tells of dormancy, and of the deletion that follows", () => {
  const { rerender } = render(<Dormancy workspace={workspace({})} />);
  expect(screen.queryByRole("status")).toBeNull();
  rerender(<Dormancy workspace={workspace({ dormant_at: later(-1) })} />);
  screen.getByText("It stays stopped until you wake it.");
  rerender(<Dormancy workspace={workspace({ dormant_at: later(-1), deleting_at: later(5) })} />);
  screen.getByText("It will be deleted unless you wake it.");
});
