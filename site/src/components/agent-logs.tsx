import { useLayoutEffect, useMemo, useRef, useState } from "react";
import { useAgentLog } from "~/api/logs";
import type { WorkspaceAgent } from "~/api/types";
import { useMedia } from "~/lib/hooks";
import { useRows } from "~/lib/rows";
import { lineHeight, LogText, useWrap, WrapButton, wrapped } from "./log-line";
import { cx, Select } from "./ui";

// AgentLogs shows what an agent's scripts print, of all or of one source.
export function AgentLogs({ agent, running }: { agent: WorkspaceAgent; running: boolean }) {
  const { lines, state } = useAgentLog(agent.id, !running);
  const [source, setSource] = useState("");
  const shown = useMemo(() => (source ? lines.filter((l) => l.source_id === source) : lines), [lines, source]);
  const names = useMemo(() => new Map(agent.log_sources.map((s) => [s.id, s.display_name])), [agent.log_sources]);
  const scroller = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const named = useMedia("(min-width: 40rem)") ? 112 : 72; // how wide the name of a source is, px
  const wrap = useWrap(shown, scroller, source ? 24 : 24 + named + 12, (l) => l.output);
  const { first, last, height } = useRows(list, shown.length, lineHeight, scroller, wrap.offsets);
  const [sticks, setSticks] = useState(true);
  useLayoutEffect(() => {
    if (sticks && scroller.current) scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [sticks, height]);
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
              : `${shown.length.toLocaleString("en")} lines${state === "following" ? ", live" : ""}`}
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
        <p className="text-muted">Nothing has been printed{source ? " by this source" : ""} yet.</p>
      ) : (
        <div
          ref={scroller}
          tabIndex={0}
          role="log"
          aria-live="off"
          aria-label={`Log of ${agent.name}`}
          onScroll={(e) =>
            setSticks(
              e.currentTarget.scrollHeight - e.currentTarget.scrollTop - e.currentTarget.clientHeight < 2 * lineHeight,
            )
          }
          className="max-h-80 min-h-20 overflow-auto rounded-md bg-log font-mono text-[12.5px] text-[#dce2ec]"
        >
          <div ref={list} className={cx("relative", wrap.wraps ? "w-full" : "w-max min-w-full")} style={{ height }}>
            {shown.slice(first, last).map((line, i) => (
              <div
                key={line.id}
                className="absolute inset-x-0 flex gap-[12px] px-[12px] leading-[20px] whitespace-pre"
                style={{ top: wrap.row(first + i) * lineHeight, height: wrap.rows(first + i) * lineHeight }}
              >
                {!source && (
                  <span className="w-[112px] shrink-0 truncate max-sm:w-[72px] text-[#8791a3]">
                    {names.get(line.source_id) ?? ""}
                  </span>
                )}
                <span className={wrap.wraps ? cx("min-w-0 flex-1", wrapped) : ""}>
                  <LogText text={line.output} level={line.level} />
                </span>
              </div>
            ))}
          </div>
        </div>
      )}
    </div>
  );
}
