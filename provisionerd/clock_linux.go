package provisionerd

import (
	"time"

	"golang.org/x/sys/unix"
)

// awake returns the time since the machine started, including sleep, because leases expire during sleep, too. Setting
// the machine's clock does not change it.
func awake() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Since(processStart) // a kernel before 2.6.39
	}
	return time.Duration(t.Nano())
}
