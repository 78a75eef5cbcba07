package tailnet

import (
	"net"

	"github.com/codermesh/codermesh/v2/tailnet/engine"
)

// Over reports whether the stack has stopped sending for a TCP connection from Dial or a listener.
func Over(c net.Conn) bool { return c.(*tcpConn).Conn.Over() }

// IsStream reports whether a connection is a stream.
func IsStream(c net.Conn) bool {
	_, ok := c.(*tcpConn).Conn.(engine.Stream)
	return ok
}
