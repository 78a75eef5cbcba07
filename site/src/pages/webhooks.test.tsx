import { expect, it } from "vitest";
import type { WebhookDelivery } from "~/api/types";
import { answer } from "./webhooks";

const delivery: WebhookDelivery = {
  id: 1,
  event_id: "",
  sequence: 1,
  type: "build.failed",
  status: "pending",
  attempts: 1,
  replay: false,
  response_status: 0,
  excerpt: "",
  error: "",
  created_at: "",
  next_at: null,
  finished_at: null,
};

it.each([
  ["", {}],
  ["connection refused", { error: "connection refused" }],
  ["503 · busy", { response_status: 503, error: "the webhook answered with status 503", excerpt: "busy" }],
  ["200 · ok", { response_status: 200, excerpt: "ok" }],
])("says what is known of an answer: %s", (want, change) => {
  expect(answer({ ...delivery, ...change })).toBe(want);
});
