import { expect, it } from "vitest";
import type { WorkspaceBuild } from "~/api/types";
import { happened } from "./activity";

const build = (transition: string, reason: string, status = "succeeded") =>
  ({ transition, reason, initiator_name: "ada", job: { status } }) as WorkspaceBuild;

it("says who did what, and why", () => {
  expect(happened(build("start", "dashboard"))).toBe("ada started it");
  expect(happened(build("stop", "cli"))).toBe("ada stopped it from the command line");
  expect(happened(build("stop", "dormancy"))).toBe("Stopped after inactivity");
  expect(happened(build("start", "autostart", "failed"))).toBe("The start by autostart failed");
  expect(happened(build("stop", "dashboard", "canceled"))).toBe("The stop was canceled");
});
