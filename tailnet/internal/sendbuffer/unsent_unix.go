//go:build linux || darwin

package sendbuffer

import (
	"net"

	"golang.org/x/sys/unix"
)

func limitUnsent(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // it has ended
	}
	_ = raw.Control(func(fd uintptr) { // likewise
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
	})
}
