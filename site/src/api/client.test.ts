import { afterEach, expect, it, vi } from "vitest";
import { type ApiError, get, post, send } from "./client";

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

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
  expect(err.detail).toBe("Try again. If it happens again, ask your admin to check the server's log.");
});

const html = () => new Response("<html>", { status: 502 });
const cut = (): Response => {
  throw new TypeError("network error");
};

it("says that a change whose answer was lost may have been made", async () => {
  const lost = async (answer: () => Response, request: () => Promise<unknown>) => {
    vi.stubGlobal("fetch", () => Promise.resolve().then(answer));
    return request().then(
      () => expect.unreachable(),
      (err: ApiError) => err.detail,
    );
  };
  for (const answer of [html, cut]) {
    expect(await lost(answer, () => send("PATCH", "templates/1", {}))).toMatch(
      / The change may have been made: look before you try again\.$/,
    );
    expect(await lost(answer, () => get("templates/1"))).not.toContain("change");
  }
});

// creations creates something, and answers one request after the other; the last answer repeats. It returns the result
// and the keys of the requests.
async function creations(keys: boolean, ...answers: (() => Response)[]) {
  vi.useFakeTimers();
  const sent: (string | null)[] = [];
  const known = new Headers({ "X-Coder-Build-Version": "v2", ...(keys && { "X-Coder-Idempotency-Keys": "true" }) });
  vi.stubGlobal("fetch", (_: string, init: RequestInit) => {
    if (init.method === "GET") return Promise.resolve(new Response("{}", { headers: known }));
    sent.push(new Headers(init.headers).get("Idempotency-Key"));
    return Promise.resolve().then(() => answers[Math.min(sent.length, answers.length) - 1]!());
  });
  await get("users/me");
  const result = post<{ id: string }>("organizations", { name: "ops" }).catch((err: ApiError) => err);
  await vi.runAllTimersAsync();
  return { result: await result, sent };
}

const made = () => new Response('{"id":"1"}', { status: 201 });
const taken = () => new Response('{"message":"This name is taken."}', { status: 409 });

it("repeats a creation with its key until it has an answer", async () => {
  const { result, sent } = await creations(true, html, cut, made);
  expect(result).toEqual({ id: "1" });
  expect(sent.length).toBe(3);
  expect(new Set(sent).size).toBe(1);
  expect(sent[0]).toMatch(/^[\d-]{16,}$/);
  expect((await creations(true, made)).sent[0]).not.toBe(sent[0]);
});

it("gives up repeating a creation", async () => {
  const { result, sent } = await creations(true, html);
  expect(result).toMatchObject({ status: 502, lost: true });
  expect(sent.length).toBeGreaterThan(4);
});

it("does not repeat a creation that was answered, or at a server that does not know keys", async () => {
  expect((await creations(true, taken, made)).sent.length).toBe(1);
  expect((await creations(false, html, made)).sent.length).toBe(1);
  expect((await creations(false, cut, made)).sent.length).toBe(1);
});
