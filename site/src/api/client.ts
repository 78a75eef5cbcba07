// Requests to the server, their errors, and the state of session and connection.
import { useSyncExternalStore } from "react";

export class ApiError extends Error {
  readonly status: number; // 0: no answer
  readonly detail: string;
  readonly validations: { field: string; detail: string }[];

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
  signal?: AbortSignal;
}

async function call(path: string, { method = "GET", body, signal }: Call = {}): Promise<Response> {
  const raw = body instanceof Blob;
  const deadline = AbortSignal.timeout(raw ? transferTimeout : timeout);
  let response: Response;
  try {
    response = await fetch(`/api/v2/${path}`, {
      method,
      signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
      headers: body === undefined ? {} : { "Content-Type": raw ? body.type : "application/json" },
      body: body === undefined ? null : raw ? body : JSON.stringify(body),
      cache: "no-store",
    });
  } catch (err) {
    if (signal?.aborted) throw err;
    setLink({ server: "lost" });
    throw new ApiError(
      0,
      "Cannot reach the server.",
      "It may be restarting, or you are offline. This page reconnects.",
    );
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => null);
  if (response.status >= 502 && response.status <= 504 && !answer?.message) setLink({ server: "lost" }); // from a proxy
  if (response.status === 401 && path !== "users/login") {
    const message = String(answer?.message ?? "");
    setLink({ session: "ended", ...(message.startsWith(endedBecause) && { why: message }) });
  }
  if (answer?.message) throw new ApiError(response.status, answer.message, answer.detail, answer.validations);
  throw new ApiError(
    response.status,
    `The server returned status ${response.status}.`,
    "Ask your admin to read the server's log.",
  );
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
