package apps

import (
	"sync"
	"time"
)

// maxCached bounds a cache. Beyond it everything is forgotten.
const maxCached = 4096

// cache keeps answers for a short time. Safe for concurrent use.
type cache[K comparable, V any] struct {
	fresh time.Duration

	mu      sync.Mutex
	by      map[K]cached[V] // guarded by mu
	forgets int             // guarded by mu: calls of forget
}

type cached[V any] struct {
	value V
	until time.Time
}

func newCache[K comparable, V any](fresh time.Duration) *cache[K, V] {
	return &cache[K, V]{fresh: fresh, by: map[K]cached[V]{}}
}

// get is the kept answer, or a new one. Errors are not kept, nor what was asked before the last forget.
func (c *cache[K, V]) get(key K, ask func() (V, error)) (V, error) {
	c.mu.Lock()
	old, ok := c.by[key]
	forgets := c.forgets
	c.mu.Unlock()
	if ok && time.Now().Before(old.until) {
		return old.value, nil
	}
	value, err := ask()
	if err != nil {
		return value, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgets != forgets {
		return value, nil
	}
	if len(c.by) >= maxCached {
		clear(c.by)
	}
	c.by[key] = cached[V]{value, time.Now().Add(c.fresh)}
	return value, nil
}

// forget drops the answers that the predicate names. A get that begins afterwards asks for them again.
func (c *cache[K, V]) forget(which func(K, V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgets++
	for key, old := range c.by {
		if which(key, old.value) {
			delete(c.by, key)
		}
	}
}
