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
      // The event stream says when something has changed; nothing is asked again before that.
      staleTime: Infinity,
      refetchOnWindowFocus: false,
      // What the server has answered is final. Only silence is worth another try.
      retry: (count, err) => err instanceof ApiError && (err.status === 0 || err.status >= 502) && count < 10,
      retryDelay,
      networkMode: "always",
    },
    mutations: { networkMode: "always" },
  },
  // Whatever a change has touched is asked again at once, before the event stream tells.
  mutationCache: new MutationCache({ onSuccess: () => void client.invalidateQueries({ refetchType: "active" }) }),
});

// What nearly every visit needs is on its way before the first component asks: who is here, and the page that most begin with.
if (!["/login", "/setup"].includes(location.pathname)) void client.prefetchQuery(queries.me());
if (["/", "/workspaces"].includes(location.pathname)) {
  void import("./pages/workspaces");
  const search = new URLSearchParams(location.search).get("q") ?? firstSearch;
  void client.prefetchQuery(queries.workspaces(search));
}

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
