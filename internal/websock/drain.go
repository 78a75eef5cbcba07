package websock

import (
	"context"
	"sync"
)

// Drain starts a goroutine that reads and discards what the other side sends, for a connection on which only this side
// sends messages, because only reads notice close frames and pongs. The returned context ends with the connection or
// ctx. done closes the connection, if it is still open, and waits for the goroutine.
func (c *Conn) Drain(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer cancel()
		for {
			if _, err := c.Read(ctx); err != nil {
				return
			}
		}
	})
	return ctx, func() {
		c.CloseNow()
		cancel()
		reader.Wait()
	}
}
