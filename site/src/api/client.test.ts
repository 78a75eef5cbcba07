// @vitest-environment jsdom
import { act, renderHook } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { address, type ApiError, get, post, probe, send, useLink } from "./client";
import type { CreateGroupRequest, Workspace } from "./types";

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

// failure is how a request fails on an answer of the server, or of what stands before it.
async function failure(body: string, status: number): Promise<ApiError> {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(body, { status })));
  return get("users/{user}", { user: "me" }).then(
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
    expect(
      await lost(answer, () => send("PATCH templates/{template}", { template: "1", body: { name: "one" } })),
    ).toMatch(/ The change may have been made: look before you try again\.$/);
    expect(await lost(answer, () => get("templates/{template}", { template: "1" }))).not.toContain("change");
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
  await get("users/{user}", { user: "me" });
  const result = post("organizations", { body: { name: "ops" } }).catch((err: ApiError) => err);
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

it("encodes what it puts into an address, once", async () => {
  const asked: string[] = [];
  vi.stubGlobal("fetch", (path: string) => {
    asked.push(path);
    return Promise.resolve(new Response("{}"));
  });
  const odd = "a/b?c=d&e#f %2F ü";
  const encoded = "a%2Fb%3Fc%3Dd%26e%23f%20%252F%20%C3%BC";
  await get("users/{user}/workspace/{workspacename}", { user: odd, workspacename: "{user}" });
  await get("workspaces", { query: { q: odd, sort: undefined, limit: 0 } });
  await send("DELETE users/{user}/secrets/{name}", { user: "me", name: odd });
  await post("organizations/{organization}/groups", { organization: odd, body: { name: "ops" } as CreateGroupRequest });
  expect(asked).toEqual([
    `/api/v2/users/${encoded}/workspace/%7Buser%7D`,
    `/api/v2/workspaces?q=${encoded}&limit=0`,
    `/api/v2/users/me/secrets/${encoded}`,
    `/api/v2/organizations/${encoded}/groups`,
  ]);
  expect(address("GET users/export", { query: { q: odd } })).toBe(`/api/v2/users/export?q=${encoded}`);
});

it("does not ask for an object whose name would lead to another route", async () => {
  const asked = vi.fn();
  vi.stubGlobal("fetch", asked);
  for (const user of ["", ".", ".."])
    await expect(send("DELETE users/{user}", { user })).rejects.toMatchObject({ status: 404 });
  expect(asked).not.toHaveBeenCalled();
});

// The compiler checks these; nothing runs them.
export const types = () => {
  // @ts-expect-error: the API has no such path
  void get("user/{user}", { user: "me" });
  // @ts-expect-error: the path has another method
  void send("POST users/{user}", { user: "me" });
  // @ts-expect-error: a parameter is missing
  void get("users/{user}");
  // @ts-expect-error: one of two parameters is missing
  void get("users/{user}/workspace/{workspacename}", { user: "me" });
  // @ts-expect-error: the path has no such parameter
  void get("users/{user}", { user: "me", name: "dev" });
  // @ts-expect-error: the route reads no such query
  void get("workspaces", { query: { search: "dev" } });
  // @ts-expect-error: the body is missing
  void send("PUT workspaces/{workspace}/dormant", { workspace: "1" });
  // @ts-expect-error: the body has another type
  void send("PUT workspaces/{workspace}/dormant", { workspace: "1", body: { dormant: "no" } });
  // @ts-expect-error: the body has a field that the server does not know
  void post("organizations", { body: { name: "ops", colour: "red" } });
  // @ts-expect-error: the route reads no body
  void send("PUT workspaces/{workspace}/favorite", { workspace: "1", body: {} });
  // @ts-expect-error: the answer has another type
  const workspace: Promise<Workspace> = get("users/{user}", { user: "me" });
  return workspace;
};

it("tells a server without its database from one that does not answer", async () => {
  const { result } = renderHook(() => useLink());
  const answers = (body: unknown, status: number) =>
    vi.stubGlobal("fetch", () => Promise.resolve(new Response(JSON.stringify(body), { status })));
  const message = "The database is not reachable.";
  answers({ message, reason: "database_unreachable" }, 503);
  await expect(act(() => get("templates"))).rejects.toMatchObject({ away: true, lost: false });
  expect(result.current).toMatchObject({ server: "unable", trouble: message, session: "unknown" });
  await act(() => probe());
  expect(result.current.server).toBe("unable");
  vi.stubGlobal("fetch", () => Promise.resolve(html()));
  await act(() => probe());
  expect(result.current).toMatchObject({ server: "lost", trouble: "" });
  answers({ message: "The database's disk is full." }, 503);
  await act(() => probe());
  expect(result.current).toMatchObject({ server: "unable", trouble: "The database's disk is full." });
  answers({}, 200);
  await act(() => probe());
  expect(result.current).toMatchObject({ server: "ok", trouble: "", session: "unknown" });
});
