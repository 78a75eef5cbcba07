// @vitest-environment jsdom
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import type { Workspace } from "~/api/types";
import { noteOf, WorkspaceBadge } from "./status";

afterEach(cleanup);

const workspace = (status: string, more: object = {}) =>
  ({
    dormant_at: "2026-11-01T00:00:00Z",
    deleting_at: null,
    health: { healthy: true },
    latest_build: { status, reason: "autostop", resources: [], job: { queue_position: 0 } },
    ...more,
  }) as unknown as Workspace;

it.each([
  ["running", "Dormant"],
  ["stopped", "Dormant"],
  ["canceled", "Dormant"],
  ["stopping", "stopping"],
  ["deleting", "deleting"],
  ["failed", "failed"], // its stop: the page says why
])("calls a dormant workspace that is %s %s", (status, badge) => {
  render(<WorkspaceBadge workspace={workspace(status)} />);
  screen.getByText(badge);
});

it("says in a list when a dormant workspace is deleted, and no longer why it was stopped", () => {
  const deleting_at = new Date(Date.now() + 60 * 86_400_000 - 60_000).toISOString();
  expect(noteOf(workspace("stopped"))).toBe("");
  expect(noteOf(workspace("stopped", { deleting_at }))).toMatch(/^deleted in 60 d unless you wake it$/);
  expect(noteOf(workspace("stopped", { dormant_at: null }))).toBe("by autostop");
});
