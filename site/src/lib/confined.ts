// Only the terminal's page may write inline styles. A browser applies the policy of the document that it loaded, so the
// terminal and the other pages need documents of their own.
import { useEffect } from "react";
import { useLocation } from "wouter";

// The same pattern is in the server's routes.go.
const isTerminal = (path: string) => /^\/@[^/]+\/[^/]+\/terminal\/?$/.test(path);

const loaded = isTerminal(location.pathname);

// useOwnDocument is false while a page of the other kind is being loaded from the server.
export function useOwnDocument(): boolean {
  const [path] = useLocation();
  const own = isTerminal(path) === loaded;
  useEffect(() => {
    if (!own) location.reload();
  }, [own]);
  return own;
}
