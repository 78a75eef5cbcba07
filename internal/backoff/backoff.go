// Package backoff spaces retries, with growing delays, jitter and a cap.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff counts the attempts of one operation. The zero value is not usable: Min and Max must be set. Not safe for
// concurrent use.
type Backoff struct {
	Min, Max time.Duration
	tries    int
}

// Next returns how long to wait before the next attempt: a random time between half and all of the current delay, which
// starts at Min, doubles with each attempt, and is at most Max.
func (b *Backoff) Next() time.Duration {
	d := b.Max
	if shift := b.tries; shift < 32 && b.Min<<shift < b.Max && b.Min<<shift > 0 {
		d = b.Min << shift
		b.tries++
	}
	return d/2 + rand.N(d/2+1)
}

// Reset returns to Min.
func (b *Backoff) Reset() { b.tries = 0 }

// Wait blocks for the duration of Next. If ctx ends first, it returns ctx's error.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next(), nil) }

// Stable is how long a connection must last to end an Outage. A shorter one may have been accepted by a server that
// cannot work.
const Stable = 10 * time.Second

// Outage spaces the attempts to reach a server by how long it has been unreachable: briefly at first, since most
// outages are a restart or a change of network, and between 7.5 and 15 seconds after a minute, so that many clients do
// not overload a returning server. The zero value is an outage that begins with the first Next. Not safe for concurrent
// use.
type Outage struct{ since time.Time }

// Lost records the end of a connection that began at the given time: a new outage begins if it lasted for Stable.
func (o *Outage) Lost(began time.Time) {
	if time.Since(began) >= Stable {
		o.since = time.Now()
	}
}

// Next returns how long to wait before the next attempt.
func (o *Outage) Next() time.Duration {
	if o.since.IsZero() {
		o.since = time.Now()
	}
	top := 15 * time.Second
	switch away := time.Since(o.since); {
	case away < 2*time.Second:
		return 100*time.Millisecond + rand.N(200*time.Millisecond)
	case away < 10*time.Second:
		top = 600 * time.Millisecond
	case away < time.Minute:
		top = 2 * time.Second
	}
	return top/2 + rand.N(top/2)
}

// Sleep blocks for d, until wake has something to receive, or until ctx ends: then it returns ctx's error. A nil wake
// never wakes it.
func Sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
