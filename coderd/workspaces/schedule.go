package workspaces

import (
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/codermesh/codermesh/internal/fault"
)

// parseSchedule reads a weekly schedule in cron's form, "CRON_TZ=Europe/Berlin 30 9 * * 1-5": minute, hour, and days of the week;
// every month and every day of it. The time zone may be left out, and is UTC then.
func parseSchedule(text string) (cron.Schedule, error) {
	refuse := func(detail string) error {
		return fault.New(fault.Invalid, "The schedule %q is not accepted.", text).WithField("schedule", detail)
	}
	fields := strings.Fields(text)
	zone := "CRON_TZ=UTC"
	if len(fields) > 0 && strings.HasPrefix(fields[0], "CRON_TZ=") {
		zone, fields = fields[0], fields[1:]
	}
	if len(fields) != 5 {
		return nil, refuse(`must have five fields, like "CRON_TZ=Europe/Berlin 30 9 * * 1-5"`)
	}
	if fields[2] != "*" || fields[3] != "*" {
		return nil, refuse("day of month and month must be *")
	}
	schedule, err := cron.ParseStandard(zone + " " + strings.Join(fields, " "))
	if err != nil {
		return nil, refuse(err.Error())
	}
	if schedule.Next(time.Now()).IsZero() {
		return nil, refuse("never comes")
	}
	return schedule, nil
}
