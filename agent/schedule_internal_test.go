package agent

import (
	"testing"
	"time"
)

func TestParseSchedule(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"0 0 22 * * *":          time.Date(2026, 3, 4, 22, 0, 0, 0, time.UTC),
		"0 */5 * * * *":         time.Date(2026, 3, 4, 5, 10, 0, 0, time.UTC),
		"30 0 9 * * 1-5":        time.Date(2026, 3, 4, 9, 0, 30, 0, time.UTC),
		"*/10 * * * *":          time.Date(2026, 3, 4, 5, 10, 0, 0, time.UTC),
		"@hourly":               time.Date(2026, 3, 4, 6, 0, 0, 0, time.UTC),
		"TZ=UTC 0 6 * * *":      time.Date(2026, 3, 4, 6, 0, 0, 0, time.UTC),
		"TZ=UTC\t0\t6\t*\t*\t*": time.Date(2026, 3, 4, 6, 0, 0, 0, time.UTC),
		"TZ=UTC 1 0 6 * * *":    time.Date(2026, 3, 4, 6, 0, 1, 0, time.UTC),
	} {
		schedule, err := parseSchedule(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := schedule.Next(from); !got.Equal(want) {
			t.Errorf("%q: next %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "x", "1 2 3", "99 * * * * *", "CRON_TZ=UTC", "TZ=Mars/Olympus'*(*))"} {
		if _, err := parseSchedule(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func FuzzParseSchedule(f *testing.F) {
	f.Add("0 0 22 * * *")
	f.Add("CRON_TZ=Mars/Olympus * * * * *")
	f.Add("CRON_TZ=UTC")
	f.Add("TZ=UTC\t0\t0\t*\t*\t*")
	f.Fuzz(func(t *testing.T, text string) {
		if schedule, err := parseSchedule(text); err == nil {
			now := time.Now()
			if next := schedule.Next(now); !next.IsZero() && !next.After(now) {
				t.Errorf("%q: next is %s, not after %s", text, next, now)
			}
		}
	})
}
