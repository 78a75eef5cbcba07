package stream

// Buffered is how many bytes a Read returns without waiting.
func (c *Conn) Buffered() int {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	return int(c.readable())
}
