//go:build unix

package webdial

import (
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// local are the loopback addresses that programs use. Others may stand for a path, as in tests.
var local = map[netip.Addr]bool{netip.AddrFrom4([4]byte{127, 0, 0, 1}): true, netip.IPv6Loopback(): true}

// limitSegments makes a new connection to an address send and request segments of at most maxSegment bytes, if the
// system can.
func limitSegments(_, addr string, raw syscall.RawConn) error {
	if to, err := netip.ParseAddrPort(addr); err == nil && local[to.Addr()] {
		return nil
	}
	return raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG,
			maxSegment)
	})
}
