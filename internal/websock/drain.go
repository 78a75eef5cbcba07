package websock

import (
	"context"
	"sync"
)

// Drain reads and throws away what the other side sends, on a goroutine of its own, for a connection on which only this side
// speaks: close frames and pongs are noticed by reads. The context that it returns ends when the connection does, or ctx. done
// closes the connection, if it is still open, and waits for the goroutine.
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
