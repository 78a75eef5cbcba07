import { useCallback, useMemo, useState } from "react";
import { useAgentLog } from "~/api/logs";
import type { AgentLogSource, WorkspaceAgent } from "~/api/types";
import { LogText, useWrap, WrapButton, wrapped } from "~/components/log/line";
import { LogScroller } from "~/components/log/scroller";
import { cx } from "~/components/ui/cx";
import { Select } from "~/components/ui/form";
import { Icon } from "~/components/ui/icon";
import { plural } from "~/lib/format";

const SourceName = ({ of: s }: { of: AgentLogSource | undefined }) => (
  <span className="flex w-[112px] shrink-0 items-center gap-[4px] text-[#8791a3] max-sm:w-[72px]">
    {s?.icon && <Icon src={s.icon} name={s.display_name} className="size-[14px]" />}
    <span className="min-w-0 truncate">{s?.display_name}</span>
  </span>
);

// AgentLogs shows what an agent's scripts print, of all or of one source.
export function AgentLogs({ agent, running }: { agent: WorkspaceAgent; running: boolean }) {
  const { lines, state } = useAgentLog(agent.id, !running);
  const [source, setSource] = useState("");
  const shown = useMemo(() => (source ? lines.filter((l) => l.source_id === source) : lines), [lines, source]);
  const sources = useMemo(() => new Map(agent.log_sources.map((s) => [s.id, s])), [agent.log_sources]);
  const id = useCallback((i: number) => shown[i]!.id, [shown]);
  const wrap = useWrap();
  return (
    <div className="flex flex-col gap-2">
      <div className="flex flex-wrap items-center gap-3">
        {agent.log_sources.length > 0 && (
          <Select
            aria-label="Log source"
            value={source}
            onChange={(e) => setSource(e.target.value)}
            className="w-auto!"
          >
            <option value="">All sources</option>
            {agent.log_sources.map((s) => (
              <option key={s.id} value={s.id}>
                {s.display_name}
              </option>
            ))}
          </Select>
        )}
        <span role="status" className="text-[13px] text-muted">
          {state === "lost"
            ? "reconnecting…"
            : state === "loading"
              ? "loading…"
              : `${plural(shown.length, "line")}${state === "following" ? ", live" : ""}`}
        </span>
        {shown.length > 0 && (
          <WrapButton
            wraps={wrap.wraps}
            onToggle={wrap.toggle}
            className={cx("ml-auto", wrap.wraps ? "bg-raised text-ink" : "text-muted hover:text-ink")}
          />
        )}
      </div>
      {shown.length === 0 && state !== "loading" ? (
        <p className="text-muted">No output{source ? " from this source" : ""} yet.</p>
      ) : (
        <LogScroller
          label={`Log of ${agent.name}`}
          count={shown.length}
          id={id}
          wraps={wrap.wraps}
          live={running}
          className="max-h-80 min-h-20 rounded-md bg-log text-[#dce2ec]"
        >
          {(i) => (
            <div className="flex gap-[12px] px-[12px]">
              {!source && <SourceName of={sources.get(shown[i]!.source_id)} />}
              <span className={wrap.wraps ? cx("min-w-0 flex-1", wrapped) : ""}>
                <LogText text={shown[i]!.output} level={shown[i]!.level} />
              </span>
            </div>
          )}
        </LogScroller>
      )}
    </div>
  );
}
