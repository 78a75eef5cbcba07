package stream

// Buffered returns how many bytes a Read can return without blocking.
func (c *Conn) Buffered() int {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	return int(c.readable())
}
