// How many users are active, dormant and suspended, and how many were active on the last days.
import { useQuery } from "@tanstack/react-query";
import { queries } from "~/api/queries";
import { Bars } from "~/components/ui/bars";
import { Card } from "~/components/ui/card";
import { Pending } from "~/components/ui/pending";
import { plural } from "~/lib/format";

const statuses = ["active", "dormant", "suspended"];

export function UserStatuses() {
  const report = useQuery(queries.userStatusCounts());
  const counts = report.data?.status_counts;
  return (
    <Card title="Users by status">
      <Pending query={report} what="number of users" />
      {counts && (
        <>
          <p className="mb-2 text-[13px] text-muted">
            Now {statuses.map((s) => `${counts[s]?.at(-1)?.count ?? 0} ${s}`).join(", ")}. Active users at the end of
            each of the last {counts["active"]?.length ?? 0} days:
          </p>
          <Bars
            label="Active users"
            unit={(n) => plural(n, "user")}
            of={(counts["active"] ?? []).map(({ date, count }) => ({ date, amount: count }))}
          />
        </>
      )}
    </Card>
  );
}
