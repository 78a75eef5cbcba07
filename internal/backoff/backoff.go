// Package backoff spaces retries: exponential, jittered, capped.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff counts the tries of one operation. The zero value is not usable: Min and Max must be set. Not safe for concurrent
// use.
type Backoff struct {
	Min, Max time.Duration
	tries    int
}

// Next is how long to wait before the next try: a random time between half and all of Min doubled once per earlier try, at
// most Max.
func (b *Backoff) Next() time.Duration {
	d := b.Max
	if shift := b.tries; shift < 32 && b.Min<<shift < b.Max && b.Min<<shift > 0 {
		d = b.Min << shift
		b.tries++
	}
	return d/2 + rand.N(d/2+1)
}

// Reset starts again at Min.
func (b *Backoff) Reset() { b.tries = 0 }

// Wait blocks for Next, or until ctx ends: then it returns ctx's error.
func (b *Backoff) Wait(ctx context.Context) error {
	t := time.NewTimer(b.Next())
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Outage is how long to wait before the next try to reach a server that has been away for the given time: short at first, since
// most outages are a restart or a change of network, and between 7.5 and 15 seconds after a minute, so that many clients do not
// keep a returning server busy.
func Outage(away time.Duration) time.Duration {
	top := 15 * time.Second
	switch {
	case away < 2*time.Second:
		return 100*time.Millisecond + rand.N(200*time.Millisecond)
	case away < 10*time.Second:
		top = 600 * time.Millisecond
	case away < time.Minute:
		top = 2 * time.Second
	}
	return top/2 + rand.N(top/2)
}
