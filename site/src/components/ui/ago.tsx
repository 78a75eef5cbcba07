import { ago, fullTime } from "~/lib/format";
import { useNow } from "~/lib/hooks";

// Ago shows how long ago a moment was, and keeps that current.
export function Ago({ at }: { at: string | null | undefined }) {
  useNow(30_000); // renders again; the moment may be later than the last tick
  return (
    <time dateTime={at ?? undefined} title={fullTime(at)}>
      {ago(at)}
    </time>
  );
}
