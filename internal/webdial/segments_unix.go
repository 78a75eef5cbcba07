//go:build unix

package webdial

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSegments makes a new connection send and request segments of at most maxSegment bytes, if the system can.
func limitSegments(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, maxSegment) })
}
