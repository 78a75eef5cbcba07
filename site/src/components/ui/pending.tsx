import type { ReactNode } from "react";
import { ErrorNote } from "./error-note";
import { Loading } from "./loading";
import { Page } from "./page";

interface Asked {
  error: unknown;
  isPending: boolean;
}

// Pending stands in for a query that has no answer yet or failed.
export function Pending({ query: { error, isPending }, what }: { query: Asked; what: string }) {
  if (error) return <ErrorNote error={error} />;
  return isPending ? <Loading what={what} /> : null;
}

// PendingPage stands in for a whole page.
export function PendingPage({ query, what, title }: { query: Asked; what: string; title: ReactNode }) {
  if (!query.error) return <Loading what={what} />;
  return (
    <Page title={title}>
      <ErrorNote error={query.error} />
    </Page>
  );
}
