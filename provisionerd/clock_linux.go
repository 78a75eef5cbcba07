package provisionerd

import (
	"time"

	"golang.org/x/sys/unix"
)

// awake is the time since the machine started, with the time that it slept: a lease ends for a sleeper too. Setting the
// machine's clock does not change it.
func awake() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Since(processStart) // a kernel before 2.6.39
	}
	return time.Duration(t.Nano())
}
