// The log of a build or an import: by stage, live, with colours, and with an address for every line.
import { ArrowDown, ChevronDown, ChevronRight, LoaderCircle, Search } from "lucide-react";
import { useQueryClient } from "@tanstack/react-query";
import { useDeferredValue, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { Followed } from "~/api/logs";
import type { JobLog, ProvisionerJob } from "~/api/types";
import { duration } from "~/lib/format";
import { useNow } from "~/lib/hooks";
import { useRows } from "~/lib/rows";
import { rows as rowsOf, type Section, sections } from "~/lib/sections";
import { lineHeight, LogText, useWrap, WrapButton, wrapped } from "./log-line";
import { cx } from "./ui";

// What stands in a row beside a line's text, px: its number and the gaps.
const besideText = 52 + 12 + 12;

const lineOf = (hash: string) => Number(/^#L(\d+)$/.exec(hash)?.[1] ?? 0);

export function JobLogView({ log, job }: { log: Followed<JobLog>; job: ProvisionerJob }) {
  const { lines, state } = log;
  const [folded, setFolded] = useState<ReadonlySet<number>>(new Set());
  const [search, setSearch] = useState("");
  const [marked, setMarked] = useState(() => lineOf(location.hash));
  const wanted = useDeferredValue(search.toLowerCase());
  const all = useMemo(() => sections(lines, job.completed_at), [lines, job.completed_at]);
  const shown = useMemo(
    () => rowsOf(all, folded, wanted ? (i) => lines[i]!.output.toLowerCase().includes(wanted) : undefined),
    [all, folded, wanted, lines],
  );
  const scroller = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const wrap = useWrap(shown, scroller, besideText, (r) => ("line" in r ? lines[r.line]!.output : undefined));
  const { first, last, height } = useRows(list, shown.length, lineHeight, scroller, wrap.offsets);
  const [sticks, setSticks] = useState(marked === 0);
  const now = useNow(1000, !job.completed_at);

  // The end of a followed log is the end of its job, whose result is asked for at once.
  const client = useQueryClient();
  const over = state === "ended" && !job.completed_at;
  useEffect(() => {
    if (!over) return;
    for (const kind of ["workspaces", "templates", "jobs"]) void client.invalidateQueries({ queryKey: [kind] });
  }, [over, client]);

  useEffect(() => {
    const changed = () => setMarked(lineOf(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);

  // The line that the address names is shown once it is there.
  const reached = useRef(0);
  useLayoutEffect(() => {
    if (!wrap.ready || marked === 0 || reached.current === marked || lines.length < marked || !scroller.current) return;
    const at = shown.findIndex((r) => "line" in r && r.line === marked - 1);
    if (at < 0) return;
    reached.current = marked;
    scroller.current.scrollTop = (wrap.offsets?.[at] ?? at) * lineHeight - scroller.current.clientHeight / 3;
    scroller.current.scrollIntoView({ block: "nearest" });
  }, [marked, shown, lines.length, wrap.offsets, wrap.ready]);

  // A log that is read at its end is followed.
  useLayoutEffect(() => {
    if (sticks && scroller.current) scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [sticks, height]);

  const scrolled = () => {
    const s = scroller.current!;
    setSticks(s.scrollHeight - s.scrollTop - s.clientHeight < 2 * lineHeight);
  };
  const mark = (line: number) => {
    reached.current = line;
    setMarked(line);
    history.replaceState(history.state, "", `#L${line}`);
  };
  const fold = (index: number) => {
    const next = new Set(folded);
    if (!next.delete(index)) next.add(index);
    setFolded(next);
  };

  return (
    <div className="overflow-hidden rounded-b-lg bg-log text-[#dce2ec]" data-log={state}>
      <div className="flex items-center gap-2 border-b border-white/10 px-3 py-1.5 text-[13px]">
        <Search className="size-4 text-[#9aa5b6]" aria-hidden />
        <input
          type="search"
          aria-label="Find in the log"
          placeholder="Find in the log"
          value={search}
          onChange={(e) => setSearch(e.target.value)}
          className="min-w-0 flex-1 bg-transparent placeholder:text-[#9aa5b6]"
        />
        <WrapButton
          wraps={wrap.wraps}
          onToggle={wrap.toggle}
          className={wrap.wraps ? "bg-white/15 text-white" : "text-[#9aa5b6] hover:text-white"}
        />
        <span className="whitespace-nowrap text-[#9aa5b6]" role="status">
          {state === "loading"
            ? "loading…"
            : state === "lost"
              ? "reconnecting…"
              : state === "following" && !job.completed_at
                ? "live"
                : `${lines.length.toLocaleString("en")} lines`}
        </span>
      </div>
      <div className="relative">
        <div
          ref={scroller}
          onScroll={scrolled}
          tabIndex={0}
          role="log"
          aria-label="Log"
          aria-live="off"
          className="max-h-[min(32rem,65vh)] min-h-24 overflow-auto font-mono text-[12.5px] [overflow-anchor:none]"
        >
          <div ref={list} className={cx("relative", wrap.wraps ? "w-full" : "w-max min-w-full")} style={{ height }}>
            {shown.slice(first, last).map((row, i) => (
              <div
                key={"line" in row ? row.line : `s${row.index}`}
                className="absolute inset-x-0 leading-[20px] whitespace-pre"
                style={{ top: wrap.row(first + i) * lineHeight, height: wrap.rows(first + i) * lineHeight }}
              >
                {"line" in row ? (
                  <Line
                    line={lines[row.line]!}
                    number={row.line + 1}
                    marked={row.line + 1 === marked}
                    onMark={mark}
                    wraps={wrap.wraps}
                  />
                ) : (
                  <StageRow
                    section={row.section}
                    folded={folded.has(row.index)}
                    now={now}
                    onFold={() => fold(row.index)}
                  />
                )}
              </div>
            ))}
          </div>
          {state !== "loading" && lines.length === 0 && (
            <p className="px-3 py-6 text-[#9aa5b6]">
              {job.completed_at ? "This job has written no log." : "Nothing has been written yet."}
            </p>
          )}
        </div>
        {!sticks && !job.completed_at && (
          <button
            type="button"
            onClick={() => setSticks(true)}
            className="absolute right-4 bottom-3 flex items-center gap-1 rounded-full bg-fill px-3 py-1 text-[13px] font-medium text-white shadow"
          >
            <ArrowDown className="size-3.5" aria-hidden /> Follow
          </button>
        )}
      </div>
    </div>
  );
}

function Line({
  line,
  number,
  marked,
  onMark,
  wraps,
}: {
  line: JobLog;
  number: number;
  marked: boolean;
  onMark: (n: number) => void;
  wraps: boolean;
}) {
  return (
    <div className={cx("flex gap-[12px] pr-[12px]", marked && "bg-[#3a4170]")}>
      <a
        href={`#L${number}`}
        aria-label={`Line ${number}`}
        tabIndex={-1}
        onClick={(e) => {
          e.preventDefault();
          onMark(number);
        }}
        className="w-[52px] shrink-0 text-right text-[#8791a3] select-none hover:text-white"
      >
        {number}
      </a>
      <span className={wraps ? cx("min-w-0 flex-1", wrapped) : ""}>
        <LogText text={line.output} level={line.log_level} />
      </span>
    </div>
  );
}

function StageRow({
  section,
  folded,
  now,
  onFold,
}: {
  section: Section;
  folded: boolean;
  now: number;
  onFold: () => void;
}) {
  const running = section.to === undefined;
  return (
    <button
      type="button"
      aria-expanded={!folded}
      onClick={onFold}
      className="sticky left-0 flex h-[20px] w-full max-w-[calc(100vw-3rem)] items-center gap-1.5 bg-white/5 px-2 text-left hover:bg-white/10"
    >
      {folded ? <ChevronRight className="size-3.5" aria-hidden /> : <ChevronDown className="size-3.5" aria-hidden />}
      <span className={cx("font-sans font-semibold", section.failed && "ansi-red")}>{section.stage || "Log"}</span>
      {running && <LoaderCircle className="size-3 animate-spin" aria-hidden />}
      <span className="ml-3 text-[#9aa5b6]">{duration((section.to ?? now) - section.from)}</span>
    </button>
  );
}
