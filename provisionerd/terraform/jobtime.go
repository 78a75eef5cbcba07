package terraform

import (
	"context"
	"sync"
	"time"
)

// timeoutGrace is how long a job that exceeded its time limit may take to end.
const timeoutGrace = time.Minute

// limitTime stops the job when its time is over, and kills it if it does not end then. The returned function frees the
// timer's resources.
func (r *runner) limitTime(ctx context.Context) (context.Context, func()) {
	limit := r.timeout
	if limit <= 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	asked, merged := r.stop, make(chan struct{})
	r.stop = merged
	var watcher sync.WaitGroup
	watcher.Go(func() {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-asked:
			close(merged)
			return
		case <-timer.C:
			close(merged)
		}
		timer.Reset(timeoutGrace)
		select {
		case <-ctx.Done():
		case <-timer.C:
			cancel()
		}
	})
	return ctx, func() {
		cancel()
		watcher.Wait()
	}
}

// tookTooLong reports whether the job was stopped only because of its time limit.
func (r *runner) tookTooLong(asked <-chan struct{}) bool { return stopped(r.stop) && !stopped(asked) }
