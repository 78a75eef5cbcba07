import { ago, fullTime, until } from "~/lib/format";
import { useNow } from "~/lib/hooks";

interface Props {
  at: string | null | undefined;
  ahead?: boolean; // the moment may be yet to come
}

// Ago shows how long ago a moment was, and keeps that current.
export function Ago({ at, ahead }: Props) {
  useNow(30_000); // renders again; the moment may be later than the last tick
  return (
    <time dateTime={at ?? undefined} title={fullTime(at)}>
      {ahead ? until(at) : ago(at)}
    </time>
  );
}
