//go:build unix

package webdial

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSegments makes a connection that is about to be made send and ask for segments of at most maxSegment bytes. A system that cannot
// leaves them as they are.
func limitSegments(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, maxSegment) })
}
