import { WrapText } from "lucide-react";
import { memo, type RefObject, useCallback, useMemo, useState } from "react";
import type { LogLevel } from "~/api/types";
import { ansi } from "~/lib/ansi";
import { columnsOf, offsets, useColumns } from "~/lib/wrap";
import { cx } from "./ui";

export const lineHeight = 20; // px

const levels: Record<LogLevel, string> = {
  trace: "opacity-70",
  debug: "opacity-75",
  info: "",
  warn: "ansi-yellow",
  error: "ansi-red",
};

// LogText is one line of output with its colours. What it says is text, never markup.
export const LogText = memo(function LogText({ text, level }: { text: string; level: LogLevel }) {
  return (
    <span className={levels[level]}>
      {ansi(text).map((p, i) =>
        p.look ? (
          <span key={i} className={p.look}>
            {p.text}
          </span>
        ) : (
          p.text
        ),
      )}
    </span>
  );
});

const storageKey = "log-wrap";

// useWrap wraps long lines, unless somebody has chosen otherwise. beside is how wide what stands in a row beside its text is, px;
// text is an item's, undefined for one that is no line.
export function useWrap<T>(
  items: T[],
  scroller: RefObject<HTMLElement | null>,
  beside: number,
  text: (item: T) => string | undefined,
) {
  const [wraps, setWraps] = useState(() => stored() !== "off");
  const columns = useColumns(scroller, beside);
  const [widths] = useState(() => new Map<string, number>()); // of the few lines that are not plain
  const at = useMemo(() => {
    if (!wraps || columns === 0) return undefined;
    const width = (i: number) => {
      const line = text(items[i]!) ?? "";
      if (line.length <= columns / 8) return line.length; // however wide its letters are
      let known = widths.get(line);
      if (known === undefined) {
        known = columnsOf(line);
        if (known !== line.length) widths.set(line, known);
      }
      return known;
    };
    return offsets(items.length, width, columns);
  }, [items, wraps, columns]); // eslint-disable-line react-hooks/exhaustive-deps
  const toggle = useCallback(() => {
    setWraps(!wraps);
    try {
      localStorage.setItem(storageKey, wraps ? "off" : "on");
    } catch {
      // Without storage it holds for this page.
    }
  }, [wraps]);
  return {
    wraps,
    toggle,
    offsets: at,
    ready: !wraps || at !== undefined,
    row: (i: number) => at?.[i] ?? i,
    rows: (i: number) => (at ? at[i + 1]! - at[i]! : 1),
  };
}

function stored(): string | null {
  try {
    return localStorage.getItem(storageKey);
  } catch {
    return null;
  }
}

export const wrapped = "whitespace-break-spaces [line-break:anywhere]";

export function WrapButton({
  wraps,
  onToggle,
  className,
}: {
  wraps: boolean;
  onToggle: () => void;
  className?: string;
}) {
  return (
    <button
      type="button"
      aria-pressed={wraps}
      aria-label="Wrap long lines"
      title="Wrap long lines"
      onClick={onToggle}
      className={cx("rounded p-1", className)}
    >
      <WrapText className="size-4" aria-hidden />
    </button>
  );
}
