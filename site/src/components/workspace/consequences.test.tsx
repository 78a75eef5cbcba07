// @vitest-environment jsdom
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render as renderAlone, screen } from "@testing-library/react";
import type { ReactElement } from "react";
import { afterEach, expect, it } from "vitest";
import type { Workspace } from "~/api/types";
import { Announced, Consequences, Dormancy } from "./consequences";

afterEach(cleanup);

const render = (ui: ReactElement) =>
  renderAlone(ui, {
    wrapper: ({ children }) => <QueryClientProvider client={new QueryClient()}>{children}</QueryClientProvider>,
  });

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

// announce is when a stop is announced, in hours; null: never.
const stop = (announce: number | null) => ({
  action: "stop",
  at: later(2),
  announce_at: announce === null ? null : later(announce),
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

it("announces the deletion of a dormant workspace once", () => {
  const deletion = { ...stop(-1), action: "delete", explanation: "Is deleted today." };
  const w = workspace({ dormant_at: later(-1), deleting_at: later(5), consequences: [deletion] });
  render(
    <>
      <Dormancy workspace={w} />
      <Announced workspace={w} />
    </>,
  );
  expect(screen.getAllByRole("status")).toHaveLength(1);
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
  const stopped = { latest_build: { ...workspace({}).latest_build, status: "stopped" } };
  rerender(<Dormancy workspace={workspace({ dormant_at: later(-1) })} />);
  screen.getByText("What still runs of it is stopped, and stays so until you wake it.");
  rerender(<Dormancy workspace={workspace({ ...stopped, dormant_at: later(-1) })} />);
  screen.getByText("It stays stopped until you wake it.");
  rerender(<Dormancy workspace={workspace({ ...stopped, dormant_at: later(-1), deleting_at: later(5) })} />);
  expect(screen.getByRole("status").textContent).toMatch(
    /It stays stopped until you wake it\. It will be deleted on .* \(in 5 h\) unless you wake it\.$/,
  );
});
