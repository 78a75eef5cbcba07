// The scrolling part of a log. It renders only the rows near the viewport, and follows the end.
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown } from "lucide-react";
import { type ReactNode, useEffect, useLayoutEffect, useRef, useState } from "react";
import { cx } from "~/components/ui/cx";

const lineHeight = 20; // px, of a row that is not wrapped

interface LogScrollerProps {
  label: string;
  count: number; // of the rows
  id: (index: number) => string | number; // of a row; a new function makes the scroller measure all rows again
  children: (index: number) => ReactNode; // a row's content
  wraps: boolean; // rows can be higher than one line
  follow?: boolean; // start at the end instead of the beginning
  live?: boolean; // the log grows: offer to follow it
  reveal?: number; // the row to scroll to; -1: none
  onRevealed?: () => void;
  className?: string;
  empty?: ReactNode; // shown when there are no rows
}

export function LogScroller({
  label,
  count,
  id,
  children,
  wraps,
  follow = true,
  live = false,
  reveal = -1,
  onRevealed,
  className,
  empty,
}: LogScrollerProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const [sticks, setSticks] = useState(follow);
  const rows = useVirtualizer({
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => lineHeight,
    getItemKey: id,
    overscan: 20,
  });
  const height = rows.getTotalSize();

  // Wrapped and unwrapped rows differ in height.
  useEffect(() => rows.measure(), [rows, wraps]);

  useLayoutEffect(() => {
    if (reveal < 0) return;
    setSticks(false);
    rows.scrollToIndex(reveal, { align: "center" });
    scroller.current?.scrollIntoView({ block: "nearest" });
    onRevealed?.();
  }, [rows, reveal, onRevealed]);

  // Follow a log whose reader is at its end.
  useLayoutEffect(() => {
    if (sticks && scroller.current) scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [sticks, height]);

  const scrolled = () => {
    const s = scroller.current!;
    setSticks(s.scrollHeight - s.scrollTop - s.clientHeight < 2 * lineHeight);
  };
  return (
    <div className="relative">
      <div
        ref={scroller}
        onScroll={scrolled}
        tabIndex={0}
        role="log"
        aria-label={label}
        aria-live="off"
        className={cx("overflow-auto font-mono text-[12.5px] [overflow-anchor:none]", className)}
      >
        <div className={cx("relative", wraps ? "w-full" : "w-max min-w-full")} style={{ height }}>
          {rows.getVirtualItems().map((row) => (
            <div
              key={row.key}
              data-index={row.index}
              ref={wraps ? rows.measureElement : null}
              className="absolute inset-x-0 min-h-[20px] leading-[20px] whitespace-pre"
              style={{ top: row.start }}
            >
              {children(row.index)}
            </div>
          ))}
        </div>
        {count === 0 && empty}
      </div>
      {live && !sticks && (
        <button
          type="button"
          onClick={() => setSticks(true)}
          className={cx(
            "absolute right-4 bottom-3 flex items-center gap-1 rounded-full",
            "bg-fill px-3 py-1 text-[13px] font-medium text-white shadow",
          )}
        >
          <ArrowDown className="size-3.5" aria-hidden /> Follow
        </button>
      )}
    </div>
  );
}
