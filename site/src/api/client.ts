// Requests to the server, their errors, and the state of session and connection.
import { useSyncExternalStore } from "react";

export class ApiError extends Error {
  readonly status: number; // 0: no answer
  readonly detail: string;
  readonly validations: { field: string; detail: string }[];
  lost = false; // whether the server got the request is unknown

  constructor(status: number, message: string, detail = "", validations: { field: string; detail: string }[] = []) {
    super(message);
    this.status = status;
    this.detail = detail;
    this.validations = validations;
  }
}

// The state of the connection: "ended" means that the session is no longer valid, "lost" that the server does not
// answer.
interface Link {
  session: "unknown" | "ended";
  why: string; // the server ended the session; "" if it gave no reason
  server: "ok" | "lost";
}

let link: Link = { session: "unknown", why: "", server: "ok" };
const listeners = new Set<() => void>();

export function setLink(change: Partial<Link>) {
  const next = { ...link, ...change };
  if (next.session === link.session && next.why === link.why && next.server === link.server) return;
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

// What begins the server's message if it ended the session for a reason that the user must know.
const endedBecause = "The session has ended: ";

const timeout = 60_000; // ms, as the command line allows
const transferTimeout = 15 * 60_000; // ms, one file

interface Call {
  method?: string;
  body?: unknown;
  key?: string | undefined; // by which the server recognizes that the request is repeated
  signal?: AbortSignal;
}

let knowsKeys = false; // the server has said that it recognizes keys

// unanswered is the error of a request that got no answer from the server, which may have done what it asked for.
function unanswered(status: number, message: string, detail: string): ApiError {
  const err = new ApiError(status, message, detail);
  err.lost = true;
  setLink({ server: "lost" });
  return err;
}

async function call(path: string, { method = "GET", body, key, signal }: Call = {}): Promise<Response> {
  const raw = body instanceof Blob;
  const headers: Record<string, string> = {};
  if (body !== undefined) headers["Content-Type"] = raw ? body.type : "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const doubt = method === "GET" ? "" : " The change may have been made: look before you try again.";
  const deadline = AbortSignal.timeout(raw ? transferTimeout : timeout);
  let response: Response;
  try {
    response = await fetch(`/api/v2/${path}`, {
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
  if (answer?.message) throw new ApiError(response.status, answer.message, answer.detail, answer.validations);
  const message = `The server returned status ${response.status}.`;
  if (response.status >= 502 && response.status <= 504) {
    // From a proxy: a server gives a reason.
    const remedy = doubt || " Try again in a moment.";
    throw unanswered(response.status, message, `A server behind the proxy may have just ended.${remedy}`);
  }
  const remedy = "Try again. If it happens again, ask your admin to check the server's log.";
  throw new ApiError(response.status, message, remedy);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await call(path, signal ? { signal } : {})).json()) as T;
}

export async function getBytes(path: string): Promise<Uint8Array> {
  return new Uint8Array(await (await call(path)).arrayBuffer());
}

export async function send<T = void>(
  method: "POST" | "PUT" | "PATCH" | "DELETE",
  path: string,
  body?: unknown,
): Promise<T> {
  const text = await (await call(path, { method, body })).text();
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

const patience = 10_000; // ms, as the command line has

// post sends a POST that creates something. If its answer is lost it repeats the request, with a key by which the
// server recognizes that, if it does.
export async function post<T = void>(path: string, body?: unknown): Promise<T> {
  // Pages without HTTPS have no randomUUID.
  const key = knowsKeys ? crypto.getRandomValues(new Uint32Array(4)).join("-") : undefined;
  const end = Date.now() + patience;
  for (let n = 0; ; n++) {
    try {
      return (await (await call(path, { method: "POST", body, key })).json()) as T;
    } catch (err) {
      if (!key || !(err as ApiError).lost || Date.now() > end) throw err;
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(2000, retryDelay(n))));
  }
}

// socket opens a websocket of the API.
export function socket(path: string): WebSocket {
  const url = new URL(`/api/v2/${path}`, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return new WebSocket(url);
}

export const segment = encodeURIComponent;

// retryDelay is the pause before the nth retry, in ms: exponential, bounded and jittered.
export function retryDelay(n: number): number {
  return Math.min(10_000, 300 * 2 ** n) * (0.5 + Math.random() / 2);
}
