//go:build linux || windows || darwin

package usage

import (
	"context"
	"runtime"
	"time"
)

// sample is how long a measurement of processor usage takes.
const sample = 250 * time.Millisecond

// HostCPU returns how many cores the machine uses now. It blocks for a quarter of a second.
func (m *Meter) HostCPU(ctx context.Context) (Amount, error) {
	used, err := rate(ctx, m.hostCPUSeconds)
	total := float64(runtime.NumCPU())
	return Amount{min(used, total), &total, "cores"}, err
}

// rate returns how much a counter of seconds grows per second.
func rate(ctx context.Context, counter func() (float64, error)) (float64, error) {
	before, err := counter()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(sample):
	}
	after, err := counter()
	return max(after-before, 0) / time.Since(start).Seconds(), err
}
