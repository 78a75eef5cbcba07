package httpapi

import (
	"strconv"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Zone returns a time zone by its name in the IANA database, or else by its offset in hours; UTC without either. A
// request names them timezone and tz_offset.
func Zone(name, offset string) (*time.Location, error) {
	if name != "" {
		zone, err := time.LoadLocation(name)
		if err != nil || name == "Local" {
			return nil, fault.New(fault.Invalid, "There is no such time zone.").
				WithField("timezone", "must be a name such as Europe/Berlin")
		}
		return zone, nil
	}
	if offset == "" {
		return time.UTC, nil
	}
	hours, err := strconv.Atoi(offset)
	if err != nil || hours < -12 || hours > 14 {
		return nil, fault.New(fault.Invalid, "There is no such time zone.").
			WithField("tz_offset", "must be a number of hours from -12 to 14")
	}
	return time.FixedZone("", hours*int(time.Hour/time.Second)), nil
}
