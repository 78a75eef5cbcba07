package workspaces

import (
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/codermesh/codermesh/internal/fault"
)

// parseSchedule reads a weekly schedule in cron's form, "CRON_TZ=Europe/Berlin 30 9 * * 1-5": minute, hour, and days of the week;
// every month and every day of it. Without a time zone it is UTC.
func parseSchedule(text string) (wallClock, error) {
	refuse := func(detail string) (wallClock, error) {
		return wallClock{}, fault.New(fault.Invalid, "The schedule %q is invalid.", text).WithField("schedule", detail)
	}
	fields := strings.Fields(text)
	zone := "CRON_TZ=UTC"
	if len(fields) > 0 && strings.HasPrefix(fields[0], "CRON_TZ=") {
		zone, fields = fields[0], fields[1:]
	}
	if len(fields) != 5 {
		return refuse(`must have five fields, like "CRON_TZ=Europe/Berlin 30 9 * * 1-5"`)
	}
	if fields[2] != "*" || fields[3] != "*" {
		return refuse("day of month and month must be *")
	}
	parsed, err := cron.ParseStandard(zone + " " + strings.Join(fields, " "))
	if err != nil {
		return refuse(err.Error())
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return refuse("must set minutes, hours and days of the week")
	}
	schedule := wallClock{location: spec.Location, spec: *spec}
	schedule.spec.Location = time.UTC
	if schedule.Next(time.Now()).IsZero() {
		return refuse("never comes")
	}
	return schedule, nil
}

// wallClock is a schedule by the clock on the wall. A time that the clock skips when summer begins comes at the end of what is skipped;
// one that it shows twice comes the first time only. So a daily schedule comes once on each day.
type wallClock struct {
	location *time.Location
	spec     cron.SpecSchedule // of the wall's times, as if they were UTC
}

// maxOffset is more than any zone differs from UTC, and than clocks were ever turned by.
const maxOffset = 26 * time.Hour

// Next is the first time of the schedule after t; zero when there is none within five years.
func (s wallClock) Next(t time.Time) time.Time {
	_, offset := t.In(s.location).Zone()
	// From a little earlier on: when clocks are turned back, wall times before t's come after it.
	wall := t.UTC().Add(time.Duration(offset)*time.Second - 3*time.Hour)
	for {
		if wall = s.spec.Next(wall); wall.IsZero() {
			return wall
		}
		if at := s.instant(wall); at.After(t) {
			return at.In(t.Location())
		}
	}
}

// instant is when the clock first shows a wall time, or the end of the gap that skips it. The wall time is given as if it were UTC.
func (s wallClock) instant(wall time.Time) time.Time {
	for t := wall.Add(-maxOffset).In(s.location); ; {
		_, offset := t.Zone()
		_, end := t.ZoneBounds() // zero: this offset stays
		at := wall.Add(-time.Duration(offset) * time.Second)
		if end.IsZero() || at.Before(end) {
			// Not before the offset began: then the period before would have had it, or a gap skipped it.
			if begin, _ := t.ZoneBounds(); at.Before(begin) {
				return begin
			}
			return at
		}
		t = end.In(s.location)
	}
}
