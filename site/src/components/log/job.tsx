// The log of a build or an import: by stage, live, with colours, and with an address for every line.
import { ChevronDown, ChevronRight, LoaderCircle, Search } from "lucide-react";
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useDeferredValue, useEffect, useMemo, useState } from "react";
import type { Followed } from "~/api/logs";
import type { JobLog, ProvisionerJob } from "~/api/types";
import { cx } from "~/components/ui/cx";
import { duration } from "~/lib/format";
import { useNow } from "~/lib/hooks";
import { type Row, rows as rowsOf, type Section, sections } from "~/lib/sections";
import { LogText, useWrap, WrapButton, wrapped } from "./line";
import { LogScroller } from "./scroller";

const idOf = (row: Row) => ("line" in row ? row.line : `s${row.index}`);

// linkedLine is the line of a log that the address names; 0: none.
export const linkedLine = () => Number(/^#L(\d+)$/.exec(location.hash)?.[1] ?? 0);

export function JobLogView({ log, job }: { log: Followed<JobLog>; job: ProvisionerJob }) {
  const { lines, state } = log;
  const [folded, setFolded] = useState<ReadonlySet<number>>(new Set());
  const [search, setSearch] = useState("");
  const [marked, setMarked] = useState(linkedLine);
  const [reveal, setReveal] = useState(marked); // the line to scroll to once it is there; 0: none
  const wanted = useDeferredValue(search.toLowerCase());
  const all = useMemo(() => sections(lines, job.completed_at), [lines, job.completed_at]);
  const shown = useMemo(
    () => rowsOf(all, folded, wanted ? (i) => lines[i]!.output.toLowerCase().includes(wanted) : undefined),
    [all, folded, wanted, lines],
  );
  const id = useCallback((i: number) => idOf(shown[i]!), [shown]);
  const wrap = useWrap();
  const now = useNow(1000, !job.completed_at);

  // A followed log ends with its job. Fetch the result at once.
  const client = useQueryClient();
  const over = state === "ended" && !job.completed_at;
  useEffect(() => {
    if (!over) return;
    for (const kind of ["workspaces", "templates", "jobs"]) void client.invalidateQueries({ queryKey: [kind] });
  }, [over, client]);

  useEffect(() => {
    const changed = () => {
      setMarked(linkedLine());
      setReveal(linkedLine());
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const revealed = useCallback(() => setReveal(0), []);
  const revealRow = useMemo(
    () => (reveal > 0 ? shown.findIndex((r) => "line" in r && r.line === reveal - 1) : -1),
    [reveal, shown],
  );

  const mark = (line: number) => {
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
          aria-label="Search the log"
          placeholder="Search the log"
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
      <LogScroller
        label="Log"
        count={shown.length}
        id={id}
        wraps={wrap.wraps}
        follow={marked === 0}
        live={!job.completed_at}
        reveal={revealRow}
        onRevealed={revealed}
        className="max-h-[min(32rem,65vh)] min-h-24"
        empty={
          state !== "loading" &&
          lines.length === 0 && (
            <p className="px-3 py-6 text-[#9aa5b6]">{job.completed_at ? "This job has no log." : "No output yet."}</p>
          )
        }
      >
        {(i) => {
          const row = shown[i]!;
          return "line" in row ? (
            <Line
              line={lines[row.line]!}
              number={row.line + 1}
              marked={row.line + 1 === marked}
              onMark={mark}
              wraps={wrap.wraps}
            />
          ) : (
            <StageRow section={row.section} folded={folded.has(row.index)} now={now} onFold={() => fold(row.index)} />
          );
        }}
      </LogScroller>
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
      className={cx(
        "sticky left-0 flex h-[20px] w-full max-w-[calc(100vw-3rem)]",
        "items-center gap-1.5 bg-white/5 px-2 text-left hover:bg-white/10",
      )}
    >
      {folded ? <ChevronRight className="size-3.5" aria-hidden /> : <ChevronDown className="size-3.5" aria-hidden />}
      <span className={cx("font-sans font-semibold", section.failed && "ansi-red")}>{section.stage || "Log"}</span>
      {running && <LoaderCircle className="size-3 animate-spin" aria-hidden />}
      <span className="ml-3 text-[#9aa5b6]">{duration((section.to ?? now) - section.from)}</span>
    </button>
  );
}
