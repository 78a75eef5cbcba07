export type Tone = "plain" | "ok" | "warn" | "bad" | "accent";

export const tones: Record<Tone, string> = {
  plain: "bg-raised text-muted",
  ok: "bg-ok-soft text-ok",
  warn: "bg-warn-soft text-warn",
  bad: "bg-bad-soft text-bad",
  accent: "bg-accent-soft text-accent",
};
