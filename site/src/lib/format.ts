// Formatting of times, durations and sizes.

export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return "–";
  if (ms > 0 && ms < 1) return "<1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} min${Math.round(s % 60) ? ` ${Math.round(s % 60)} s` : ""}`;
  const h = Math.floor(m / 60);
  if (h < 48) return `${h} h${m % 60 ? ` ${m % 60} min` : ""}`;
  return `${Math.round(h / 24)} days`;
}

// since is the time between two moments in ms. Without a second moment it is the time until now.
export function since(from: string, to?: string | null): number {
  return Math.max(0, (to ? Date.parse(to) : Date.now()) - Date.parse(from));
}

// ms that the clock of what happened can be ahead of the browser's: servers whose clocks differ more from the
// database's do not start.
const skew = 60_000;

// ago says how long ago something was that has happened. Of what is further ahead than clocks differ it says how far.
export function ago(at: string | null | undefined, now = Date.now()): string {
  const ahead = at ? Date.parse(at) - now : 0;
  return until(ahead > 0 && ahead <= skew ? new Date(now).toISOString() : at, now);
}

// until says how far ahead something is that may be yet to come, or how long ago it was.
export function until(at: string | null | undefined, now = Date.now()): string {
  if (!at || at.startsWith("0001-")) return "never";
  const ms = now - Date.parse(at);
  const distance = Math.abs(ms);
  if (distance < 45_000) return ms >= 0 ? "just now" : "in a moment";
  const [value, unit] =
    distance < 90 * 60_000
      ? [Math.round(distance / 60_000), "min"]
      : distance < 36 * 3_600_000
        ? [Math.round(distance / 3_600_000), "h"]
        : distance < 60 * 86_400_000
          ? [Math.round(distance / 86_400_000), "d"]
          : [Math.round(distance / (30 * 86_400_000)), "mo"];
  return ms >= 0 ? `${value} ${unit} ago` : `in ${value} ${unit}`;
}

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

const minute = new Intl.DateTimeFormat(undefined, {
  weekday: "short",
  day: "numeric",
  month: "short",
  hour: "numeric",
  minute: "2-digit",
});

// shortTime is a moment of these weeks.
export const shortTime = (at: string): string => minute.format(new Date(at));

export function fullTime(at: string | null | undefined): string {
  return at && !at.startsWith("0001-") ? moment.format(new Date(at)) : "";
}

export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

// sentence makes a phrase a sentence.
export function sentence(text: string): string {
  return text.replace(/^./u, (c) => c.toUpperCase()).replace(/[^.!?…]$/u, "$&.");
}

// words turns a name in snake case into a label.
export function words(name: string): string {
  return name
    .replaceAll("_", " ")
    .replace(/\b(url|stun|id|ssh)\b/g, (w) => w.toUpperCase())
    .replace(/^./, (c) => c.toUpperCase());
}

// day is a day in nanoseconds, as the API counts lifetimes.
export const day = 24 * 3600 * 1e9;

// lifetimeName formats nanoseconds, in days where it can.
export const lifetimeName = (ns: number) => (ns % day === 0 ? plural(ns / day, "day") : duration(ns / 1e6));
