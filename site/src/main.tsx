import { MutationCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError, retryDelay } from "./api/client";
import { firstSearch, queries } from "./api/queries";
import { App } from "./app";
import "./index.css";

const client = new QueryClient({
  defaultOptions: {
    queries: {
      // The event stream announces changes, so cached answers stay fresh until then.
      staleTime: Infinity,
      refetchOnWindowFocus: false,
      // An answer is final. Retry only when there was none. ConnectionNote has everything asked again that gave up
      // because the server did not serve.
      retry: (count, err) =>
        err instanceof ApiError && (err.status === 0 || err.status >= 502) && count < (err.lost || err.away ? 5 : 10),
      retryDelay,
      networkMode: "always",
    },
    mutations: { networkMode: "always" },
  },
  // Refetch what a change touched at once, without waiting for the event stream.
  mutationCache: new MutationCache({ onSuccess: () => void client.invalidateQueries({ refetchType: "active" }) }),
});

// Prefetch what nearly every visit needs: the user and the most common first page.
if (!["/login", "/setup"].includes(location.pathname)) void client.prefetchQuery(queries.me());
if (["/", "/workspaces"].includes(location.pathname)) {
  void import("./pages/workspaces");
  const params = new URLSearchParams(location.search);
  void client.prefetchQuery(queries.workspaces(params.get("q") ?? firstSearch, params.get("sort") ?? ""));
}

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
