package policy

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// DefaultQuietHours is the schedule of users who chose none, unless the deployment sets another.
const DefaultQuietHours = "CRON_TZ=UTC 0 0 * * *"

// QuietHours is the daily time at which a user's quiet hours begin. Workspaces that must stop regularly are stopped
// then.
type QuietHours struct {
	Schedule
	Own bool // the user chose them, so their time zone is the user's
}

// ParseQuietHours parses the beginning of quiet hours, a daily schedule with one time such as "CRON_TZ=Europe/Berlin 0
// 22 * * *". Its errors are faults.
func ParseQuietHours(text string) (QuietHours, error) {
	refuse := func(detail string) (QuietHours, error) {
		return QuietHours{}, fault.New(fault.Invalid, "The quiet hours %q are invalid.", text).
			WithField("schedule", detail)
	}
	schedule, err := ParseSchedule(text)
	if err != nil {
		if f := fault.As(err); f != nil && len(f.Fields) > 0 {
			return refuse(f.Fields[0].Detail)
		}
		return QuietHours{}, err
	}
	const star = 1 << 63
	if schedule.spec.Dow&star == 0 && bits.OnesCount64(schedule.spec.Dow) != 7 {
		return refuse("must be a daily schedule, like " + DefaultQuietHours)
	}
	if bits.OnesCount64(schedule.spec.Minute) != 1 || bits.OnesCount64(schedule.spec.Hour) != 1 {
		return refuse("must name one time of day, like " + DefaultQuietHours)
	}
	return QuietHours{Schedule: schedule}, nil
}

// MustParseQuietHours is ParseQuietHours for constants.
func MustParseQuietHours(text string) QuietHours {
	q, err := ParseQuietHours(text)
	if err != nil {
		panic(err)
	}
	return q
}

// Clock returns the time of day as HH:MM.
func (q QuietHours) Clock() string {
	return fmt.Sprintf("%02d:%02d", bits.TrailingZeros64(q.spec.Hour), bits.TrailingZeros64(q.spec.Minute))
}

// firstWeek is the Monday from which weeks are counted.
var firstWeek = time.Date(2023, 1, 2, 0, 0, 0, 0, time.UTC)

// required returns the first time after t at which the template requires a stop: the beginning of the quiet hours on
// one of its days, in every weeks-th week. It is zero if the template names no day.
func (q QuietHours) required(t time.Time, days Days, weeks int) time.Time {
	if days == 0 {
		return time.Time{}
	}
	weeks = max(weeks, 1)
	for range 7*weeks + 8 {
		t = q.NextOn(t, days)
		year, month, day := t.In(q.location).Date()
		since := int(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Sub(firstWeek) / (24 * time.Hour))
		if floorDiv(since, 7)%weeks == 0 {
			return t
		}
	}
	return time.Time{}
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
