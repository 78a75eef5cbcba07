import { afterEach, expect, it, vi } from "vitest";
import { type ApiError, get } from "./client";

afterEach(() => vi.unstubAllGlobals());

// failure is how a request fails on an answer of the server, or of what stands before it.
async function failure(body: string, status: number): Promise<ApiError> {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(body, { status })));
  return get("users/me").then(
    () => expect.unreachable(),
    (err: ApiError) => err,
  );
}

it("passes on the server's message, and adds nothing to it", async () => {
  const validations = [{ field: "name", detail: "is taken" }];
  const err = await failure(JSON.stringify({ message: "Cannot save.", validations }), 409);
  expect([err.status, err.message, err.detail, err.validations]).toEqual([409, "Cannot save.", "", validations]);
});

it("says what to do about an answer without a message", async () => {
  const err = await failure("<html>", 500);
  expect([err.status, err.message]).toEqual([500, "The server returned status 500."]);
  expect(err.detail).toBe("Ask your admin to read the server's log.");
});
