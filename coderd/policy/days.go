package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Days is a set of days of the week. Bit 0 is Monday.
type Days uint8

// EveryDay contains all seven days.
const EveryDay Days = 1<<7 - 1

var dayNames = [7]string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

// bit returns the position of a day, 0 for Monday.
func bit(day time.Weekday) int { return (int(day) + 6) % 7 }

// ParseDays parses names such as "monday", in any order and case. field names the input in the error, which is a fault.
func ParseDays(field string, names []string) (Days, error) {
	var days Days
next:
	for _, name := range names {
		for i, known := range dayNames {
			if strings.EqualFold(name, known) {
				days |= 1 << i
				continue next
			}
		}
		return 0, fault.New(fault.Invalid, "%q is not a day of the week.", name).
			WithField(field, fmt.Sprintf("%q is not a day of the week, such as monday", name))
	}
	return days, nil
}

// Has reports whether the set contains the day.
func (d Days) Has(day time.Weekday) bool { return d&(1<<bit(day)) != 0 }

// Names returns the days' names in lower case, Monday first. It never returns nil.
func (d Days) Names() []string {
	names := []string{}
	for i, name := range dayNames {
		if d&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String lists the days for people: "Monday, Wednesday and Friday".
func (d Days) String() string {
	if d == EveryDay {
		return "every day"
	}
	names := d.Names()
	for i, name := range names {
		names[i] = strings.ToUpper(name[:1]) + name[1:]
	}
	switch n := len(names); n {
	case 0:
		return "no day"
	case 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}
