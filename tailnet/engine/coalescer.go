package engine

import (
	"net"
	"sync"
)

// coalescer gathers frames, which the relay client flushes one by one, into larger writes.
type coalescer struct {
	to net.Conn

	mu      sync.Mutex
	waiting []byte
	gathers bool // if false, each write is passed on at once
}

// Write buffers b. It blocks only when enough data has gathered.
func (c *coalescer) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, b...)
	if c.gathers && len(c.waiting) < coalesce {
		return len(b), nil
	}
	return len(b), c.flushLocked()
}

// gather starts gathering; until then, each write is passed on at once.
func (c *coalescer) gather() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gathers = true
}

func (c *coalescer) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flushLocked()
}

func (c *coalescer) flushLocked() error {
	if len(c.waiting) == 0 {
		return nil
	}
	_, err := c.to.Write(c.waiting)
	c.waiting = c.waiting[:0]
	return err
}

// empty reports whether nothing has gathered.
func (c *coalescer) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) == 0
}
