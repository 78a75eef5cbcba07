package target

import (
	"context"
	"time"
)

// LeaveQuickly runs end, and stops waiting for it after leaveTimeout, since the process is about to exit.
func LeaveQuickly(end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		end()
	}()
	timer := time.NewTimer(leaveTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// leaveTimeout is long enough to send goodbyes without waiting for answers.
const leaveTimeout = 80 * time.Millisecond

// Sleep blocks for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
