package target

import (
	"context"
	"time"
)

// LeaveQuickly runs an orderly end, and stops waiting for it after a moment: the process ends anyway.
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

// leaveTimeout lets the goodbyes be sent; their answers are of no use.
const leaveTimeout = 80 * time.Millisecond

// Sleep returns false when ctx ended first.
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
