import { WrapText } from "lucide-react";
import { memo, useState } from "react";
import type { LogLevel } from "~/api/types";
import { cx } from "~/components/ui/cx";
import { ansi } from "~/lib/ansi";

const levels: Record<LogLevel, string> = {
  trace: "opacity-70",
  debug: "opacity-75",
  info: "",
  warn: "ansi-yellow",
  error: "ansi-red",
};

// LogText is one line of output with its colours. Its content is text, never markup.
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

// useWrap is whether long lines wrap: the last choice in this browser.
export function useWrap() {
  const [wraps, setWraps] = useState(() => stored() !== "off");
  const toggle = () => {
    setWraps(!wraps);
    try {
      localStorage.setItem(storageKey, wraps ? "off" : "on");
    } catch {
      // Without storage the choice holds for this page.
    }
  };
  return { wraps, toggle };
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
