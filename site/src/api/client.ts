// Requests to the server, their errors, and the state of session and connection.
import { useSyncExternalStore } from "react";
import type { Routes } from "./routes.gen";

export class ApiError extends Error {
  readonly status: number; // 0: no answer
  readonly detail: string;
  readonly validations: { field: string; detail: string }[];
  lost = false; // whether the server got the request is unknown
  away = false; // the database does not answer

  constructor(status: number, message: string, detail = "", validations: { field: string; detail: string }[] = []) {
    super(message);
    this.status = status;
    this.detail = detail;
    this.validations = validations;
  }
}

// The state of the connection: "ended" means that the session is no longer valid, "lost" that the server does not
// answer, "unable" that it answers, but cannot serve now.
interface Link {
  session: "unknown" | "ended";
  why: string; // the server ended the session; "" if it gave no reason
  server: "ok" | "lost" | "unable";
  trouble: string; // why the server is unable
}

let link: Link = { session: "unknown", why: "", server: "ok", trouble: "" };
const listeners = new Set<() => void>();

export function setLink(change: Partial<Link>) {
  const next = { ...link, ...change };
  if (next.server !== "unable") next.trouble = "";
  if ((Object.keys(next) as (keyof Link)[]).every((key) => next[key] === link[key])) return;
  link = next;
  for (const listener of listeners) listener();
}

export function useLink(): Link {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => link,
  );
}

// whenServed calls back each time that the server serves again. It returns what ends that.
export function whenServed(again: () => void): () => void {
  let well = link.server === "ok";
  const listener = () => {
    const was = well;
    well = link.server === "ok";
    if (well && !was) again();
  };
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

// What begins the server's message if it ended the session for a reason that the user must know.
const endedBecause = "The session has ended: ";

// The reason of errors while the database does not answer.
const databaseAway = "database_unreachable";

const timeout = 60_000; // ms, as the command line allows
const transferTimeout = 15 * 60_000; // ms, one file

type Named<Path> = Path extends `${string}{${infer Name}}${infer Rest}` ? Name | Named<Rest> : never;
type Below<Method extends string, Route> = Route extends `${Method} ${infer Path}` ? Path : never;
type Query<R> = R extends { query: infer Q } ? { query?: Q } : { query?: never };
type Body<R> = R extends { body: infer B } ? { body: B } : { body?: never };
type Optional<G> = {} extends G ? [given?: G] : [given: G];

// Route is a method and a path of the API, as "GET users/{user}". Path is the path of a route with the method GET or
// another one.
type Route = keyof Routes;
export type Path<Method extends string = "GET"> = Below<Method, Route>;

// Place is what the address of a route needs: a value for each name in braces, and it can have a query.
type Place<R extends Route> = Record<Named<R>, string | number> & Query<Routes[R]>;

// Given is what a request needs: its place, and the body that the server reads.
type Given<R extends Route> = Place<R> & Body<Routes[R]>;
type Answer<R extends Route> = Routes[R]["answer"];

// Reading is what a GET request needs, or nothing.
export type Reading<P extends Path> = Optional<Given<`GET ${P}`> & { signal?: AbortSignal }>;
type Changing<R extends Route> = Optional<Given<R>>;

// fill returns a path with its values and its query. All that comes from users is encoded here. A browser removes the
// segments "." and ".." from an address, even encoded ones, and an empty one is another route: no object has such a
// name.
function fill(path: string, given: object = {}): string {
  const { query, ...values } = given as Record<string, unknown>;
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = String(values[name]);
    if (/^\.{0,2}$/.test(value)) throw new ApiError(404, `"${value}" does not exist.`);
    return encodeURIComponent(value);
  });
  const asked = Object.entries(query ?? {}).flatMap(([name, value]) =>
    value === undefined ? [] : `${name}=${encodeURIComponent(String(value))}`,
  );
  return asked.length === 0 ? filled : `${filled}?${asked.join("&")}`;
}

// address is the address of a route, for links and for what opens connections of its own.
export const address = <R extends Route>(route: R, ...[place]: Optional<Place<R>>) =>
  `/api/v2/${fill(route.slice(route.indexOf(" ") + 1), place)}`;

interface Call {
  method: string;
  path: string;
  given: { body?: unknown; signal?: AbortSignal } | undefined;
  key?: string | undefined; // by which the server recognizes that the request is repeated
}

let knowsKeys = false; // the server has said that it recognizes keys

// unanswered is the error of a request that got no answer from the server, which may have done what it asked for.
function unanswered(status: number, message: string, detail: string): ApiError {
  const err = new ApiError(status, message, detail);
  err.lost = true;
  setLink({ server: "lost" });
  return err;
}

async function call({ method, path, given = {}, key }: Call): Promise<Response> {
  const { body, signal, ...place } = given;
  const raw = body instanceof Blob;
  const target = `/api/v2/${fill(path, place)}`;
  const headers: Record<string, string> = {};
  if (body !== undefined) headers["Content-Type"] = raw ? body.type : "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const doubt = method === "GET" ? "" : " The change may have been made: look before you try again.";
  const deadline = AbortSignal.timeout(raw ? transferTimeout : timeout);
  let response: Response;
  try {
    response = await fetch(target, {
      method,
      signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
      headers,
      body: body === undefined ? null : raw ? body : JSON.stringify(body),
      cache: "no-store",
    });
  } catch (err) {
    if (signal?.aborted) throw err;
    throw unanswered(
      0,
      "Cannot reach the server.",
      `It may be restarting, or you may be offline. This page reconnects automatically.${doubt}`,
    );
  }
  if (response.headers.has("X-Coder-Build-Version")) knowsKeys = response.headers.has("X-Coder-Idempotency-Keys");
  if (response.ok) return response;
  const answer = await response.json().catch(() => null);
  if (response.status === 401 && path !== "users/login") {
    const message = String(answer?.message ?? "");
    setLink({ session: "ended", ...(message.startsWith(endedBecause) && { why: message }) });
  }
  if (answer?.message) {
    const err = new ApiError(response.status, answer.message, answer.detail, answer.validations);
    err.away = answer.reason === databaseAway;
    if (err.away) setLink({ server: "unable", trouble: err.message });
    throw err;
  }
  const message = `The server returned status ${response.status}.`;
  if (response.status >= 502 && response.status <= 504) {
    // From a proxy: a server gives a reason.
    const remedy = doubt || " Try again in a moment.";
    throw unanswered(response.status, message, `A server behind the proxy may have just ended.${remedy}`);
  }
  const remedy = "Try again. If it happens again, ask your admin to check the server's log.";
  throw new ApiError(response.status, message, remedy);
}

// get reads something: get("users/{user}", { user }).
export async function get<P extends Path>(path: P, ...[given]: Reading<P>): Promise<Answer<`GET ${P}`>> {
  return (await (await call({ method: "GET", path, given })).json()) as Answer<`GET ${P}`>;
}

// probe finds out whether the server serves.
export async function probe(): Promise<void> {
  try {
    await get("users/{user}", { user: "me" });
    setLink({ server: "ok" });
  } catch (err) {
    if (!(err instanceof ApiError) || err.lost || err.away) return; // the link says so
    setLink(err.status === 503 ? { server: "unable", trouble: err.message } : { server: "ok" });
  }
}

export async function getBytes<P extends Path>(path: P, ...[given]: Reading<P>): Promise<Uint8Array> {
  return new Uint8Array(await (await call({ method: "GET", path, given })).arrayBuffer());
}

// send changes something: send("PUT workspaces/{workspace}/ttl", { workspace, body }).
export async function send<R extends Exclude<Route, `GET ${string}`>>(
  route: R,
  ...[given]: Changing<R>
): Promise<Answer<R>> {
  const [method, path] = route.split(" ") as [string, string];
  const text = await (await call({ method, path, given })).text();
  return (text === "" ? undefined : JSON.parse(text)) as Answer<R>;
}

const patience = 10_000; // ms, as the command line has

// post sends a POST that creates something. If its answer is lost it repeats the request, with a key by which the
// server recognizes that, if it does.
export async function post<P extends Path<"POST">>(
  path: P,
  ...[given]: Changing<`POST ${P}`>
): Promise<Answer<`POST ${P}`>> {
  // Pages without HTTPS have no randomUUID.
  const key = knowsKeys ? crypto.getRandomValues(new Uint32Array(4)).join("-") : undefined;
  const end = Date.now() + patience;
  for (let n = 0; ; n++) {
    try {
      return (await (await call({ method: "POST", path, given, key })).json()) as Answer<`POST ${P}`>;
    } catch (err) {
      if (!key || !(err as ApiError).lost || Date.now() > end) throw err;
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(2000, retryDelay(n))));
  }
}

// socket opens a websocket at an address of the API.
export function socket(at: string): WebSocket {
  const url = new URL(at, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return new WebSocket(url);
}

// retryDelay is the pause before the nth retry, in ms: exponential, bounded and jittered.
export function retryDelay(n: number): number {
  return Math.min(10_000, 300 * 2 ** n) * (0.5 + Math.random() / 2);
}
