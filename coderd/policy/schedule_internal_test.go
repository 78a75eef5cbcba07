package policy

import (
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
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
		{"CRON_TZ=../../etc/passwd 0 9 * * *", time.Time{}},
		{"CRON_TZ=/etc/localtime 0 9 * * *", time.Time{}},
	} {
		schedule, err := ParseSchedule(tt.text)
		if tt.want.IsZero() {
			if fault.CodeOf(err) != fault.Invalid {
				t.Errorf("ParseSchedule(%q): error %v, want one of code invalid", tt.text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("ParseSchedule(%q): %v", tt.text, err)
			continue
		}
		if got := schedule.Next(now); !got.Equal(tt.want) {
			t.Errorf("ParseSchedule(%q).Next = %v, want %v", tt.text, got, tt.want)
		}
	}
}

// TestScheduleWhenClocksAreTurned checks that on the days on which clocks are turned, a daily schedule still runs once.
func TestScheduleWhenClocksAreTurned(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text, from string
		want             []string
	}{
		{"Berlin skips 02:30", "CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		{"Berlin skips all of several", "CRON_TZ=Europe/Berlin 0,20,40 2 * * *", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		{"Berlin has 02:30 twice", "CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-24T00:00:00Z",
			[]string{"2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"from between the two", "CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-25T01:00:00Z", []string{"2026-10-26T01:30:00Z"}},
		{"Berlin at nine", "CRON_TZ=Europe/Berlin 0 9 * * *", "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z", "2026-03-30T07:00:00Z"}},
		{"Berlin's midnight after the doubled hour", "CRON_TZ=Europe/Berlin 0 0 * * *", "2026-10-24T12:00:00Z",
			[]string{"2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"}},
		{"only on the Sunday", "CRON_TZ=Europe/Berlin 30 2 * * 0", "2026-03-27T00:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-04-05T00:30:00Z"}},
		{"New York skips 02:30", "CRON_TZ=America/New_York 30 2 * * *", "2026-03-07T12:00:00Z",
			[]string{"2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"}},
		{"New York has 01:30 twice", "CRON_TZ=America/New_York 30 1 * * *", "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"Cairo skips midnight", "CRON_TZ=Africa/Cairo 0 0 * * *", "2026-04-22T12:00:00Z",
			[]string{"2026-04-22T22:00:00Z", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"}},
		{"Cairo has 23:30 twice", "CRON_TZ=Africa/Cairo 30 23 * * *", "2026-10-28T22:00:00Z",
			[]string{"2026-10-29T20:30:00Z", "2026-10-30T21:30:00Z"}},
		{"Lord Howe skips 02:15", "CRON_TZ=Australia/Lord_Howe 15 2 * * *", "2026-10-03T00:00:00Z",
			[]string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		{"Lord Howe has 01:45 twice", "CRON_TZ=Australia/Lord_Howe 45 1 * * *", "2026-04-04T00:00:00Z",
			[]string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"}},
		{"UTC", "30 2 * * *", "2026-03-28T12:00:00Z", []string{"2026-03-29T02:30:00Z", "2026-03-30T02:30:00Z"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			schedule, err := ParseSchedule(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, tt.from)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if at = schedule.Next(at); at.Format(time.RFC3339) != want {
					t.Fatalf("comes at %s, want %s of %q", at.Format(time.RFC3339), want, tt.want)
				}
			}
		})
	}
}

// TestScheduleComesOnceADay checks that a schedule runs once on every day in every zone, at its local time or, if the clock
// skips that, at the end of the gap.
func TestScheduleComesOnceADay(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu"} {
		for _, hour := range []string{"0 0", "30 0", "15 1", "45 1", "15 2", "30 2", "0 3", "30 23"} {
			schedule, err := ParseSchedule("CRON_TZ=" + zone + " " + hour + " * * *")
			if err != nil {
				t.Fatal(err)
			}
			at := schedule.Next(time.Date(2018, 1, 1, 12, 0, 0, 0, time.UTC))
			for range 1000 {
				next := schedule.Next(at)
				year, month, day := at.In(schedule.location).Date()
				want := time.Date(year, month, day+1, 12, 0, 0, 0, schedule.location)
				if next.In(schedule.location).YearDay() != want.YearDay() {
					t.Fatalf("%s %s: comes at %s and then at %s", zone, hour, at.In(schedule.location), next.In(schedule.location))
				}
				at = next
			}
		}
	}
}

func FuzzParseSchedule(f *testing.F) {
	f.Add("CRON_TZ=Europe/Berlin 30 9 * * 1-5")
	f.Fuzz(func(t *testing.T, text string) {
		schedule, err := ParseSchedule(text)
		if err != nil {
			if fault.CodeOf(err) != fault.Invalid {
				t.Errorf("ParseSchedule(%q): %v", text, err)
			}
			return
		}
		for at, n := time.Unix(1_772_000_000, 0), 0; n < 10; n++ {
			next := schedule.Next(at)
			if !next.After(at) {
				t.Fatalf("ParseSchedule(%q): comes at %s after %s", text, next, at)
			}
			at = next
		}
	})
}
