package policy

import (
	"fmt"
	"time"
)

// duration writes a duration for people: "8 h", "1 h 30 min", "30 days".
func duration(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	d = d.Round(time.Second)
	hours, minutes, seconds := d/time.Hour, d%time.Hour/time.Minute, d%time.Minute/time.Second
	text := ""
	for _, part := range []struct {
		n    time.Duration
		unit string
	}{{hours, "h"}, {minutes, "min"}, {seconds, "s"}} {
		if part.n > 0 {
			text += fmt.Sprintf(" %d %s", part.n, part.unit)
		}
	}
	if text == "" {
		return "0 s"
	}
	return text[1:]
}

// times counts: once, twice, 3 times.
func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// when writes a time for people, seen from now: "today at 18:00 (Europe/Berlin)".
func when(at, now time.Time, in *time.Location) string {
	at, now = at.In(in), now.In(in)
	day := func(t time.Time) time.Time { y, m, d := t.Date(); return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }
	clock := at.Format("15:04") + zone(in)
	switch day(at).Sub(day(now)) / (24 * time.Hour) {
	case 0:
		return "today at " + clock
	case 1:
		return "tomorrow at " + clock
	}
	return on(at, in)
}

// on writes a time for people that stays right whenever it is read: "on Mon 23 Nov 2026 at 18:00 (Europe/Berlin)".
func on(at time.Time, in *time.Location) string {
	return "on " + at.In(in).Format("Mon 2 Jan 2006 at 15:04") + zone(in)
}

func zone(in *time.Location) string {
	if in.String() == "UTC" {
		return " UTC"
	}
	return " (" + in.String() + ")"
}
