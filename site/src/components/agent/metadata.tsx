import { useEffect, useState } from "react";
import { address, retryDelay } from "~/api/client";
import type { AgentMetadata } from "~/api/types";
import { cx } from "~/components/ui/cx";
import { ago } from "~/lib/format";

// Metadata shows the values that an agent keeps fresh.
export function Metadata({ agent }: { agent: string }) {
  const [values, setValues] = useState<AgentMetadata[]>([]);
  useEffect(() => {
    let source: EventSource;
    let timer: ReturnType<typeof setTimeout>;
    let tries = 0;
    const open = () => {
      source = new EventSource(
        address("GET workspaceagents/{workspaceagent}/watch-metadata", { workspaceagent: agent }),
      );
      source.addEventListener("data", (event: MessageEvent<string>) => {
        tries = 0;
        setValues(JSON.parse(event.data) as AgentMetadata[]);
      });
      source.onerror = () => {
        source.close();
        timer = setTimeout(open, retryDelay(tries++));
      };
    };
    open();
    return () => {
      clearTimeout(timer);
      source.close();
    };
  }, [agent]);
  if (values.length === 0) return null;
  return (
    <dl className="flex flex-wrap gap-x-8 gap-y-2" aria-label="Metadata">
      {values.map(({ description, result }) => {
        const collected = !result.collected_at.startsWith("0001-");
        const stale = collected && result.age > 2 * description.interval + description.timeout + 5;
        return (
          <div
            key={description.key}
            className="min-w-0 max-w-full"
            title={collected ? `Collected ${ago(result.collected_at)}` : "Not collected yet"}
          >
            <dt className="text-xs text-muted">{description.display_name || description.key}</dt>
            <dd className={cx("truncate font-mono text-[13px]", result.error ? "text-bad" : stale && "text-muted")}>
              {result.error || result.value || (collected ? "–" : "…")}
            </dd>
          </div>
        );
      })}
    </dl>
  );
}
