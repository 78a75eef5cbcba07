package protocol

import (
	"context"
	"time"

	"github.com/codermesh/codermesh/v2/internal/websock"
)

// Conn carries messages. Only one goroutine may read at a time; the other methods are safe for concurrent use. Close
// unblocks reads and writes, and is idempotent. *websock.Conn implements it.
type Conn interface {
	Read(ctx context.Context) ([]byte, error)
	Write(ctx context.Context, data []byte) error
	Close(status websock.Status, reason string) error
}

// LastSeen returns when the other end of an open connection last sent something: now, if the connection cannot tell.
func LastSeen(conn Conn) time.Time {
	if c, ok := conn.(interface{ LastSeen() time.Time }); ok {
		return c.LastSeen()
	}
	return time.Now()
}
