// The files of a workspace, as its agent has them.
import { queryOptions } from "@tanstack/react-query";
import { address, ApiError, get, setLink } from "./client";

// contentURL is where a browser gets a file.
export const contentURL = (agent: string, path: string) =>
  address("GET workspaceagents/{workspaceagent}/files/content", { workspaceagent: agent, query: { path } });

// archiveURL is where a browser gets a folder, as a zip archive.
export const archiveURL = (agent: string, path: string) =>
  address("GET workspaceagents/{workspaceagent}/files/archive", { workspaceagent: agent, query: { path } });

// Each request is a connection to the workspace, so a page makes none that its user does not ask for.
const onlyWhenAsked = { staleTime: Infinity, gcTime: 0, retry: false, refetchOnReconnect: false } as const;

export const folder = (agent: string, path: string) =>
  queryOptions({
    queryKey: ["agent-files", agent, path],
    queryFn: ({ signal }) =>
      get("workspaceagents/{workspaceagent}/files", { workspaceagent: agent, query: { path }, signal }),
    ...onlyWhenAsked,
    refetchOnMount: "always",
  });

interface Upload {
  agent: string;
  path: string;
  below?: string; // the folder to which path, of a tree, is relative
  file?: Blob; // without one, the path is an empty folder
  overwrite: boolean;
  signal: AbortSignal;
  onProgress: (sent: number) => void;
  onWait: () => void; // the server has enough requests for now
}

// upload sends a file, for as long as it takes. When the server has enough requests, it waits and goes on.
export async function upload(u: Upload): Promise<void> {
  for (;;) {
    u.signal.throwIfAborted();
    try {
      return await sendOnce(u);
    } catch (err) {
      if (!(err instanceof Busy)) throw err;
      u.onWait();
      await pause(err.seconds * 1000, u.signal);
    }
  }
}

// Busy is the error of a request that is to be sent again later.
class Busy extends ApiError {
  readonly seconds: number;

  constructor(of: ApiError, seconds: number) {
    super(of.status, of.message, of.detail, of.validations);
    this.seconds = seconds;
  }
}

const busyPause = 2; // seconds, if the server names none

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(end, ms);
    function end() {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    }
    signal.addEventListener("abort", end);
  });
}

// sendOnce uses XMLHttpRequest, because fetch does not say how much it has sent.
function sendOnce({ agent, path, below, file, overwrite, signal, onProgress }: Upload): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const end = () => request.abort();
    signal.addEventListener("abort", end);
    request.upload.addEventListener("progress", (e) => onProgress(e.loaded));
    request.addEventListener("loadend", () => {
      signal.removeEventListener("abort", end);
      if (signal.aborted) return reject(signal.reason as Error);
      if (request.status >= 200 && request.status < 300) return resolve();
      if (request.status === 401) setLink({ session: "ended" });
      const err = failure(request);
      if (request.status !== 429) return reject(err);
      reject(new Busy(err, Number(request.getResponseHeader("Retry-After")) || busyPause));
    });
    const query = { path, below };
    const to = file
      ? address("PUT workspaceagents/{workspaceagent}/files/content", {
          workspaceagent: agent,
          query: { ...query, overwrite: overwrite || undefined },
        })
      : address("PUT workspaceagents/{workspaceagent}/files/folder", { workspaceagent: agent, query });
    request.open("PUT", to);
    if (file) request.setRequestHeader("Content-Type", "application/octet-stream");
    request.send(file);
  });
}

// exists reports whether an upload was refused because there is a file that it may replace.
export const exists = (err: unknown) =>
  err instanceof ApiError && err.status === 409 && err.validations.some((v) => v.field === "overwrite");

function failure({ status, responseText }: XMLHttpRequest): ApiError {
  try {
    const answer = JSON.parse(responseText) as Partial<ApiError>;
    if (answer.message) return new ApiError(status, answer.message, answer.detail, answer.validations);
  } catch {
    // Not from the server.
  }
  if (status !== 0) return new ApiError(status, `The server returned status ${status}.`);
  return new ApiError(0, "The upload broke off.", "The server may be restarting, or you may be offline. Try again.");
}
