import { describe, expect, it } from "vitest";
import { describeSchedule, formatSchedule, parseSchedule } from "./schedule";

describe("schedule", () => {
  it.each([
    [
      "CRON_TZ=Europe/Berlin 30 9 * * 1-5",
      "CRON_TZ=Europe/Berlin 30 9 * * 1,2,3,4,5",
      "09:30 Mon, Tue, Wed, Thu, Fri (Europe/Berlin)",
    ],
    ["0 0 * * *", "CRON_TZ=UTC 0 0 * * *", "00:00 every day (UTC)"],
    ["5 17 * * sat,0", "CRON_TZ=UTC 5 17 * * 0,6", "17:05 Sun, Sat (UTC)"],
    ["5 17 * * fri-mon", "CRON_TZ=UTC 5 17 * * 0,1,5,6", "17:05 Sun, Mon, Fri, Sat (UTC)"],
  ])("%s", (text, formatted, described) => {
    expect(formatSchedule(parseSchedule(text)!)).toBe(formatted);
    expect(describeSchedule(text)).toBe(described);
  });

  it.each(["*/5 * * * *", "0 9 1 * *", "0 9 * * 8", "0 9 * * x", ""])("%j is more than a form can say", (text) => {
    expect(parseSchedule(text)).toBeUndefined();
  });
});
