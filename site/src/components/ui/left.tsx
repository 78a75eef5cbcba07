import { duration } from "~/lib/format";
import { useNow } from "~/lib/hooks";

// Left counts down to a moment.
export function Left({ until }: { until: string }) {
  const left = Date.parse(until) - useNow(1000);
  return <time dateTime={until}>{left > 0 ? `${duration(Math.ceil(left / 1000) * 1000)} left` : "now"}</time>;
}
