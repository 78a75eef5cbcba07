package flags

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// ParseDuration parses a positive Go duration, or days such as "30d". The empty text is 0.
func ParseDuration(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	var d time.Duration
	var err error
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n float64
		n, err = strconv.ParseFloat(days, 64)
		if n > float64(math.MaxInt64/(24*time.Hour)) {
			err = strconv.ErrRange
		}
		d = time.Duration(n * 24 * float64(time.Hour))
	} else {
		d, err = time.ParseDuration(text)
	}
	if err != nil || d <= 0 {
		return 0, fault.New(fault.Invalid, "%q is not a duration such as 30d or 12h", text)
	}
	return d, nil
}

// Days is the value of a flag that takes a duration in Go's form or in days, such as "30d". 0 is allowed.
type Days time.Duration

// Set implements pflag.Value.
func (d *Days) Set(text string) error {
	if text == "0" {
		*d = 0
		return nil
	}
	parsed, err := ParseDuration(text)
	*d = Days(parsed)
	return err
}

// String implements pflag.Value.
func (d *Days) String() string {
	const day = Days(24 * time.Hour)
	switch {
	case *d == 0:
		return "0"
	case *d%day == 0:
		return strconv.Itoa(int(*d/day)) + "d"
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value.
func (d *Days) Type() string { return "duration" }
