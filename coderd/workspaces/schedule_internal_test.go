package workspaces

import (
	"testing"
	"time"

	"github.com/codermesh/codermesh/internal/fault"
)

func TestParseSchedule(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC) // a Monday
	for _, tt := range []struct {
		text string
		want time.Time // zero: refused
	}{
		{"30 9 * * 1-5", time.Date(2026, 1, 5, 9, 30, 0, 0, time.UTC)},
		{"CRON_TZ=UTC 30 9 * * 1-5", time.Date(2026, 1, 5, 9, 30, 0, 0, time.UTC)},
		{"CRON_TZ=America/New_York 0 9 * * 2", time.Date(2026, 1, 6, 14, 0, 0, 0, time.UTC)},
		{"", time.Time{}},
		{"9:30", time.Time{}},
		{"0 9 1 * *", time.Time{}},
		{"0 9 * 1 *", time.Time{}},
		{"61 9 * * *", time.Time{}},
		{"@every 1s", time.Time{}},
		{"CRON_TZ=Nowhere/Atall 0 9 * * *", time.Time{}},
	} {
		schedule, err := parseSchedule(tt.text)
		if tt.want.IsZero() {
			if fault.CodeOf(err) != fault.Invalid {
				t.Errorf("parseSchedule(%q): error %v, want one of code invalid", tt.text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("parseSchedule(%q): %v", tt.text, err)
			continue
		}
		if got := schedule.Next(now); !got.Equal(tt.want) {
			t.Errorf("parseSchedule(%q).Next = %v, want %v", tt.text, got, tt.want)
		}
	}
}

func TestStartDue(t *testing.T) {
	t.Parallel()
	at := func(hour, minute int) time.Time { return time.Date(2026, 1, 5, hour, minute, 0, 0, time.UTC) }
	const schedule = "30 9 * * *"
	for _, tt := range []struct {
		name         string
		now, stopped time.Time
		want         bool
	}{
		{"before", at(9, 29), at(8, 0), false},
		{"at the minute", at(9, 30), at(8, 0), true},
		{"a little late", at(9, 45), at(8, 0), true},
		{"too late", at(10, 31), at(8, 0), false},
		{"stopped after it", at(9, 45), at(9, 31), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := startDue(tt.now, schedule, tt.stopped); got != tt.want {
				t.Errorf("startDue = %t, want %t", got, tt.want)
			}
		})
	}
}

func FuzzParseSchedule(f *testing.F) {
	f.Add("CRON_TZ=Europe/Berlin 30 9 * * 1-5")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := parseSchedule(text); err != nil && fault.CodeOf(err) != fault.Invalid {
			t.Errorf("parseSchedule(%q): %v", text, err)
		}
	})
}
