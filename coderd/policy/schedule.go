package policy

import (
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// ParseSchedule parses a weekly schedule in cron's form, "CRON_TZ=Europe/Berlin 30 9 * * 1-5": minute, hour, and days
// of the week; the month and the day of the month are always *. Without a time zone it is UTC. Its errors are faults.
func ParseSchedule(text string) (Schedule, error) {
	refuse := func(detail string) (Schedule, error) {
		return Schedule{}, fault.New(fault.Invalid, "The schedule %q is invalid.", text).WithField("schedule", detail)
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
	schedule := Schedule{location: spec.Location, spec: *spec}
	schedule.spec.Location = time.UTC
	if schedule.Next(time.Now()).IsZero() {
		return refuse("never comes")
	}
	return schedule, nil
}

// Schedule is a weekly schedule in local time. A time that the clock skips when summer begins runs at the end of the
// gap; a time that the clock shows twice runs the first time only. So a daily schedule runs once on each day.
type Schedule struct {
	location *time.Location
	spec     cron.SpecSchedule // in local times, as if they were UTC
}

// maxOffset exceeds every zone's difference from UTC, and every change ever made to a clock.
const maxOffset = 26 * time.Hour

// Next returns the first time of the schedule after t, or zero if there is none within five years.
func (s Schedule) Next(t time.Time) time.Time {
	_, offset := t.In(s.location).Zone()
	// Start a little earlier: when clocks are turned back, local times before t's come after it.
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

// instant returns when the clock first shows a local time, or the end of the gap that skips it. The local time is given
// as if it were UTC.
func (s Schedule) instant(wall time.Time) time.Time {
	for t := wall.Add(-maxOffset).In(s.location); ; {
		_, offset := t.Zone()
		_, end := t.ZoneBounds() // zero: this offset never ends
		at := wall.Add(-time.Duration(offset) * time.Second)
		if end.IsZero() || at.Before(end) {
			// The time is before this offset began: the period before did not have it, so a gap skipped it.
			if begin, _ := t.ZoneBounds(); at.Before(begin) {
				return begin
			}
			return at
		}
		t = end.In(s.location)
	}
}

// Location returns the schedule's time zone.
func (s Schedule) Location() *time.Location { return s.location }

// NextOn returns the first time of the schedule after t on one of the days, or zero if there is none.
func (s Schedule) NextOn(t time.Time, days Days) time.Time {
	for range 8 { // a schedule of one day a week tries that day each time
		at := s.Next(t)
		if at.IsZero() || days.Has(at.In(s.location).Weekday()) {
			return at
		}
		year, month, day := at.In(s.location).Date()
		t = s.instant(time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)).Add(-time.Nanosecond)
	}
	return time.Time{}
}
