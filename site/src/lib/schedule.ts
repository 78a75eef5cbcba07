// A workspace's start time in the form the server keeps: "CRON_TZ=Europe/Berlin 30 9 * * 1-5".

export interface Schedule {
  zone: string;
  hour: number;
  minute: number;
  days: number[]; // 0 is Sunday
}

// The time zones that the browser knows.
export const zones = () => (Intl.supportedValuesOf?.("timeZone") ?? []).concat("UTC");

export const dayNames = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

// parseSchedule returns undefined for a schedule with more than a time and days of the week.
export function parseSchedule(text: string): Schedule | undefined {
  const match = /^(?:CRON_TZ=(\S+)\s+)?(\d{1,2})\s+(\d{1,2})\s+\*\s+\*\s+(\S+)$/.exec(text.trim());
  if (!match) return undefined;
  const days = parseDays(match[4] ?? "");
  return days && { zone: match[1] ?? "UTC", minute: Number(match[2]), hour: Number(match[3]), days };
}

function parseDays(text: string): number[] | undefined {
  if (text === "*") return [0, 1, 2, 3, 4, 5, 6];
  const day = (name: string) => {
    const i = dayNames.findIndex((d) => d.toLowerCase() === name.toLowerCase());
    return i >= 0 ? i : /^[0-7]$/.test(name) ? Number(name) % 7 : NaN;
  };
  const days = new Set<number>();
  for (const part of text.split(",")) {
    const [from = "", to = from] = part.split("-");
    const [a, b] = [day(from), day(to)];
    if (Number.isNaN(a) || Number.isNaN(b)) return undefined;
    for (let d = a; ; d = (d + 1) % 7) {
      days.add(d);
      if (d === b) break;
    }
  }
  return [...days].sort((x, y) => x - y);
}

export function formatSchedule(s: Schedule): string {
  const days = s.days.length === 7 ? "*" : s.days.join(",");
  return `CRON_TZ=${s.zone} ${s.minute} ${s.hour} * * ${days}`;
}

export function describeSchedule(text: string | null | undefined): string {
  if (!text) return "Autostart is off";
  const s = parseSchedule(text);
  if (!s) return text;
  const time = `${String(s.hour).padStart(2, "0")}:${String(s.minute).padStart(2, "0")}`;
  const days = s.days.length === 7 ? "every day" : s.days.map((d) => dayNames[d]).join(", ");
  return `${time} ${days} (${s.zone})`;
}
