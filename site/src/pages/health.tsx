import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { CircleAlert, CircleCheck, RefreshCw, TriangleAlert } from "lucide-react";
import { lazy } from "react";
import { send } from "~/api/client";
import { measured, queries } from "~/api/queries";
import type { HealthSection } from "~/api/types";
import { Servers, Stopping } from "~/components/admin/servers";
import { Ago } from "~/components/ui/ago";
import { Badge } from "~/components/ui/badge";
import { Button } from "~/components/ui/button";
import { Card } from "~/components/ui/card";
import { DocsLink } from "~/components/ui/docs-link";
import { Facts } from "~/components/ui/facts";
import { LinkButton } from "~/components/ui/link-button";
import { Note } from "~/components/ui/note";
import { Page } from "~/components/ui/page";
import { Pending } from "~/components/ui/pending";
import type { Tone } from "~/components/ui/tone";
import { duration, plural, words } from "~/lib/format";
import { useTitle } from "~/lib/hooks";
import { toast } from "~/lib/toasts";

const tones: Record<HealthSection["severity"], Tone> = { ok: "ok", warning: "warn", error: "bad" };
const marks = {
  ok: <CircleCheck className="size-5 text-ok" />,
  warning: <TriangleAlert className="size-5 text-warn" />,
  error: <CircleAlert className="size-5 text-bad" />,
};

const Regions = lazy(() => import("./regions"));

// The page of regions belongs to this one, so that the first page to load does not know it.
export default function Health({ regions }: { regions?: boolean }) {
  return regions ? <Regions /> : <Report />;
}

function Report() {
  useTitle("Health");
  const health = useQuery(measured(queries.health(), 10_000));
  const wrong = health.data?.sections.filter((s) => s.severity !== "ok" && !s.dismissed).length ?? 0;
  const verdict = wrong === 0 ? "All checks passed" : `${plural(wrong, "check needs", "checks need")} attention`;
  return (
    <Page
      title="Health"
      subtitle={
        health.data && (
          <>
            {verdict} · checked <Ago at={health.data.checked_at} />
          </>
        )
      }
      actions={
        <>
          <DocsLink to="troubleshooting">Troubleshooting</DocsLink>
          <LinkButton href="/deployment/regions">Regions</LinkButton>
          <Button busy={health.isFetching} onClick={() => void health.refetch()}>
            <RefreshCw /> Check again
          </Button>
        </>
      }
    >
      <Pending query={health} what="health" />
      <Stopping of={health.data?.servers ?? []} />
      <div className="grid gap-4 lg:grid-cols-2">
        {health.data?.sections.map((s) => (
          <Card
            key={s.name}
            title={
              <span className="flex items-center gap-2">
                <span aria-hidden>{marks[s.severity]}</span> {s.label || words(s.name)}
              </span>
            }
            actions={
              <span className="flex items-center gap-2">
                {s.code && <code className="text-[13px] text-muted">{s.code}</code>}
                <Badge tone={s.dismissed ? "plain" : tones[s.severity]}>
                  {s.dismissed ? `${s.severity}, dismissed` : s.severity}
                </Badge>
                {(s.dismissed || s.severity !== "ok") && <Dismissal of={s} />}
              </span>
            }
          >
            <div className="flex flex-col gap-3">
              <p>{s.message}</p>
              {s.remedy && s.severity !== "ok" && (
                <Note tone={s.severity === "error" ? "bad" : "warn"} title="What to do">
                  {s.remedy}
                </Note>
              )}
              <Details of={s.details ?? {}} />
            </div>
          </Card>
        ))}
      </div>
      {(health.data?.servers.length ?? 0) > 1 && <Servers of={health.data!.servers} />}
    </Page>
  );
}

// Dismissal takes a check out of the verdict, or back.
function Dismissal({ of }: { of: HealthSection }) {
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: () =>
      send("PATCH debug/health/settings", {
        body: of.dismissed ? { undismiss: [of.name] } : { dismiss: [of.name] },
      }),
    onSuccess: () => client.invalidateQueries({ queryKey: queries.health().queryKey }),
    onError: (err) => toast({ tone: "bad", text: err.message }),
  });
  const verb = of.dismissed ? "Count again" : "Dismiss";
  return (
    <Button
      small
      aria-label={`${verb} ${of.label || words(of.name)}`}
      busy={change.isPending}
      onClick={() => change.mutate()}
    >
      {verb}
    </Button>
  );
}

function Details({ of }: { of: Record<string, unknown> }) {
  const all = Object.entries(of)
    .map(([k, v]): [string, unknown] => (k === "relays" && Array.isArray(v) ? [k, v.map(relay)] : [k, v]))
    .map(([k, v]): [string, string] => [words(plain(k)), say(v, k)])
    .filter(([, v]) => v !== "");
  return all.length === 0 ? null : <Facts of={all} />;
}

// relay says of a link to a relay what readers ask.
function relay(of: unknown): string {
  const { code, connected, websocket, latency, err } = of as Partial<Record<string, unknown>>;
  if (typeof code !== "string") return say(of);
  if (connected !== true) return [`${code}: not connected`, say(err)].filter(Boolean).join(", ");
  return [
    `${code}: connected`,
    websocket === true && "by WebSocket",
    typeof latency === "number" && say(latency, "latency"),
  ]
    .filter(Boolean)
    .join(", ");
}

// The units in names' endings, in ms. Durations without a unit are in ns, as in Go.
const units: Record<string, number> = { _ms: 1, _seconds: 1000 };
const unit = (key: string) => Object.keys(units).find((u) => key.endsWith(u)) ?? "";
const plain = (key: string) => key.slice(0, key.length - unit(key).length);

// say formats a value of any shape.
function say(value: unknown, key = ""): string {
  if (typeof value === "number" && unit(key)) return duration(value * units[unit(key)]!);
  if (typeof value === "number" && key === "latency") return duration(value / 1e6);
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value))
    return value
      .map((v) => say(v))
      .filter(Boolean)
      .join("; ");
  if (typeof value === "object")
    return Object.entries(value)
      .map(([k, v]) => `${plain(k).replaceAll("_", " ")} ${say(v, k)}`)
      .join(", ");
  return String(value as string | number);
}
