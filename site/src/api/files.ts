// The files of a workspace, as its agent has them.
import { queryOptions } from "@tanstack/react-query";
import { address, ApiError, get, setLink } from "./client";

// contentURL is where a browser gets a file.
export const contentURL = (agent: string, path: string) =>
  address("GET workspaceagents/{workspaceagent}/files/content", { workspaceagent: agent, query: { path } });

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
  file: Blob;
  overwrite: boolean;
  signal: AbortSignal;
  onProgress: (sent: number) => void;
}

// upload sends a file, for as long as it takes. It uses XMLHttpRequest, because fetch does not say how much it has
// sent.
export function upload({ agent, path, file, overwrite, signal, onProgress }: Upload): Promise<void> {
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
      reject(failure(request));
    });
    const to = address("PUT workspaceagents/{workspaceagent}/files/content", {
      workspaceagent: agent,
      query: { path, overwrite: overwrite || undefined },
    });
    request.open("PUT", to);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.send(file);
  });
}

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
