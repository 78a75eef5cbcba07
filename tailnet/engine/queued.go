package engine

import (
	"context"
	"net/http/httptrace"
	"sync"
	"time"
)

// queuedTime is how long the first attempt that has reached a server gets before another one begins. It doubles each time: the server is busy,
// and further attempts of a thousand nodes would keep it so.
const queuedTime = time.Second

// queued counts the attempts to connect to a relay that have reached a server, or a proxy, which has not answered so far. The zero value has
// none.
type queued struct {
	mu    sync.Mutex
	open  int
	since time.Time     // when the latest reached one
	wait  time.Duration // how long to wait for it; 0 before the first
}

// attempt calls try, and counts it as queued once it has a connection.
func (q *queued) attempt(ctx context.Context, try func(context.Context) (*relayConn, error)) (*relayConn, error) {
	reached := 0 // guarded by q.mu; there may be one per method
	trace := &httptrace.ClientTrace{ConnectDone: func(_, _ string, err error) {
		if err != nil {
			return
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		reached++
		q.open++
		q.since, q.wait = time.Now(), max(q.wait, queuedTime)
	}}
	c, err := try(httptrace.WithClientTrace(ctx, trace))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open -= reached
	return c, err
}

// mayTry reports whether another attempt may begin. If it does beside a queued one, the next must wait twice as long.
func (q *queued) mayTry(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == 0 {
		return true
	}
	if now.Sub(q.since) < q.wait {
		return false
	}
	q.since, q.wait = now, 2*q.wait
	return true
}
