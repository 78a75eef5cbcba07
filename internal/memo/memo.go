// Package memo caches results for a limited time and computes each at most once at a time.
package memo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrBusy is returned when Options.Working answers are already being computed.
var ErrBusy = errors.New("too many answers are being computed")

// Options configure a Cache.
type Options struct {
	// Fresh is how long an answer is valid. Required.
	Fresh time.Duration
	// Timeout limits the work for one answer. Required: the work does not end with its caller, because other callers
	// may wait for it.
	Timeout time.Duration
	// Max is the maximum number of cached answers. Required.
	Max int
	// Working is how many answers may be computed at the same time. 0 means any number.
	Working int
	// Keep reports whether an error is cached like other answers. nil means that no error is.
	Keep func(error) bool
}

// Cache keeps answers by key. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	opts Options

	mu      sync.Mutex
	entries map[K]*entry[V] // guarded by mu
	working int             // guarded by mu
}

// entry is an answer, finished or in progress.
type entry[V any] struct {
	done  chan struct{} // closed when value and err are set
	value V
	err   error
	until time.Time // guarded by the cache's mu; zero until the answer is ready
}

// New returns an empty Cache.
func New[K comparable, V any](opts Options) *Cache[K, V] {
	return &Cache[K, V]{opts: opts, entries: map[K]*entry[V]{}}
}

// Get returns the cached answer, waits for one in progress, or calls work for a new one. It returns early if ctx ends,
// except in the call that does the work, which blocks for at most Options.Timeout.
func (c *Cache[K, V]) Get(ctx context.Context, key K, work func(context.Context) (V, error)) (V, error) {
	c.mu.Lock()
	e := c.entries[key]
	if e != nil && (e.until.IsZero() || time.Now().Before(e.until)) {
		c.mu.Unlock()
		select {
		case <-e.done:
			return e.value, e.err
		case <-ctx.Done():
			var none V
			return none, fmt.Errorf("wait for an answer: %w", ctx.Err())
		}
	}
	if c.opts.Working > 0 && c.working >= c.opts.Working {
		c.mu.Unlock()
		var none V
		return none, ErrBusy
	}
	delete(c.entries, key)
	c.makeRoomLocked()
	e = &entry[V]{done: make(chan struct{})}
	c.entries[key] = e
	c.working++
	c.mu.Unlock()

	finished := false
	defer func() {
		if !finished { // work panicked: waiters must not wait forever
			e.err = errors.New("the work for this answer panicked")
			c.finish(key, e)
		}
	}()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.Timeout)
	defer cancel()
	e.value, e.err = work(limited)
	finished = true
	c.finish(key, e)
	return e.value, e.err
}

// finish publishes an answer, and caches it unless it is an error or was forgotten in the meantime.
func (c *Cache[K, V]) finish(key K, e *entry[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.working--
	e.until = time.Now().Add(c.opts.Fresh)
	if e.err != nil && (c.opts.Keep == nil || !c.opts.Keep(e.err)) && c.entries[key] == e {
		delete(c.entries, key)
	}
	close(e.done)
}

// makeRoomLocked drops one answer if there are too many: a stale one if it finds one quickly, otherwise any.
func (c *Cache[K, V]) makeRoomLocked() {
	if len(c.entries) < c.opts.Max {
		return
	}
	var victim K
	found, looked := false, 0
	for key, e := range c.entries { // in random order
		if e.until.IsZero() {
			continue
		}
		victim, found = key, true
		if looked++; time.Now().After(e.until) || looked == 16 {
			break
		}
	}
	if found {
		delete(c.entries, victim)
	}
}

// Forget drops the answers that which selects, and all answers in progress: a later Get computes them again.
func (c *Cache[K, V]) Forget(which func(K, V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.entries {
		if e.until.IsZero() || which(key, e.value) {
			delete(c.entries, key)
		}
	}
}
