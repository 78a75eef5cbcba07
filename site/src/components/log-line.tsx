import { memo } from "react";
import type { LogLevel } from "~/api/types";
import { ansi } from "~/lib/ansi";

export const lineHeight = 20; // px

const levels: Record<LogLevel, string> = { trace: "opacity-70", debug: "opacity-75", info: "", warn: "ansi-yellow", error: "ansi-red" };

// LogText is one line of output with its colours. What it says is text, never markup.
export const LogText = memo(function LogText({ text, level }: { text: string; level: LogLevel }) {
  return <span className={levels[level]}>{ansi(text).map((p, i) => (p.look ? <span key={i} className={p.look}>{p.text}</span> : p.text))}</span>;
});
