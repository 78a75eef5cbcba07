package workspaces

import (
	"strings"
	"testing"
)

func TestParseStartAt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"9:30AM Mon-Fri Europe/Berlin":       "CRON_TZ=Europe/Berlin 30 9 * * Mon-Fri",
		"21:00":                              "CRON_TZ=Asia/Tokyo 0 21 * * *",
		"30 9 * * 1-5":                       "30 9 * * 1-5",
		"CRON_TZ=Europe/Berlin 30 9 * * 1-5": "CRON_TZ=Europe/Berlin 30 9 * * 1-5",
		"manual":                             "",
		"half past nine":                     "error",
		" ":                                  "error",
	} {
		got, err := parseStartAt(text, "Asia/Tokyo")
		switch {
		case (err != nil) != (want == "error"):
			t.Errorf("%q: got %v", text, err)
		case err == nil && deref(got) != want:
			t.Errorf("%q: got %q, want %q", text, deref(got), want)
		}
	}
}

func TestParseStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ words, want string }{
		{"9:30", "CRON_TZ=Asia/Tokyo 30 9 * * *"},
		{"9:30AM Mon-Fri Europe/Berlin", "CRON_TZ=Europe/Berlin 30 9 * * Mon-Fri"},
		{"9pm UTC Mon,Wed", "CRON_TZ=UTC 0 21 * * Mon,Wed"},
		{"12am", "CRON_TZ=Asia/Tokyo 0 0 * * *"},
		{"12:05pm", "CRON_TZ=Asia/Tokyo 5 12 * * *"},
		{"23:59", "CRON_TZ=Asia/Tokyo 59 23 * * *"},
		{"24:00", ""}, {"13pm", ""}, {"0am", ""}, {"9:60", ""}, {"noon", ""}, {"", ""}, {"009:30", ""},
	} {
		got, err := parseStart(strings.Split(c.words, " "), "Asia/Tokyo")
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%q: got %q, want an error", c.words, *got)
		case c.want != "" && (err != nil || *got != c.want):
			t.Errorf("%q: got %v, %v, want %q", c.words, got, err, c.want)
		}
	}
	if got, err := parseStart([]string{"manual"}, "UTC"); got != nil || err != nil {
		t.Errorf("manual: got %v, %v, want none", got, err)
	}
	const cron = "CRON_TZ=Europe/Berlin 30 9 * * 1-5"
	if got, err := parseStart([]string{cron}, "UTC"); err != nil || *got != cron {
		t.Errorf("cron: got %v, %v, want it as it is", got, err)
	}
}

func TestReadableSchedule(t *testing.T) {
	t.Parallel()
	for schedule, want := range map[string]string{
		"CRON_TZ=Europe/Berlin 30 9 * * 1-5":     "09:30 Mon-Fri (Europe/Berlin)",
		"CRON_TZ=Europe/Berlin 5 21 * * Mon,Wed": "21:05 Mon,Wed (Europe/Berlin)",
		"0 7 * * *":                              "07:00 every day",
		"0 7 * * 0,6,7":                          "07:00 Sun,Sat,Sun",
		"CRON_TZ=UTC */5 7 * * *":                "CRON_TZ=UTC */5 7 * * *",
		"0 7 1 * *":                              "0 7 1 * *",
		"0 7 * * */2":                            "0 7 * * */2",
	} {
		if got := readable(schedule); got != want {
			t.Errorf("%q: got %q, want %q", schedule, got, want)
		}
	}
}

func TestParseQuietHours(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ words, want string }{
		{"22:00", "CRON_TZ=Asia/Tokyo 0 22 * * *"}, {"9:30pm Europe/Berlin", "CRON_TZ=Europe/Berlin 30 21 * * *"}, {"0:00 UTC", "CRON_TZ=UTC 0 0 * * *"},
	} {
		if got, err := parseQuietHours(strings.Split(c.words, " "), "Asia/Tokyo"); err != nil || got != c.want {
			t.Errorf("%q: %q, %v, want %q", c.words, got, err, c.want)
		}
	}
	for _, bad := range []string{"late", "25:00 UTC", "22:00 Berlin"} {
		if got, err := parseQuietHours(strings.Split(bad, " "), "UTC"); err == nil {
			t.Errorf("%q: %q, want an error", bad, got)
		}
	}
	if got, err := parseQuietHours([]string{"default"}, "UTC"); err != nil || got != "" {
		t.Errorf("default: %q, %v", got, err)
	}
}
