//go:build !linux

package provisionerd

import "time"

// awake returns the time since this process started. Setting the machine's clock does not change it.
func awake() time.Duration { return time.Since(processStart) }
