// Package sendbuffer gives a TCP connection a larger send buffer. Linux grows the buffer with the path, up to 4 MiB by
// default, of which half is data. A connection that carries 200 Mbit/s over 100 ms has 2.5 MB on the way, and after a
// lost packet as much again.
//
// It does not change what a program receives: Linux grows receive buffers further.
package sendbuffer

import "net"

// wanted is the size to ask for, in bytes. Linux doubles it, for its own structures.
const wanted = 4 << 20

// unsent is how much waits in the kernel for the path before writes block, in bytes, besides what is on the way. What
// waits there keeps its order: a program that wants to send something else first must have it still.
const unsent = 32 << 10

// Enlarge raises the limit of c's send buffer if the system grants more than it would grow the buffer to, and limits
// how much of it holds what has not been sent yet (on Linux and macOS). The memory is used only while data waits in the
// buffer. Enlarge does nothing to a connection that does not run over TCP. It looks below TLS.
func Enlarge(c net.Conn) {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = over.NetConn()
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	limitUnsent(tcp)
	if grants() {
		_ = tcp.SetWriteBuffer(wanted) // fails only if the connection has ended
	}
}
