package engine

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// allowFragments lets routers fragment packets that are too long for a path, as WireGuard in the kernel does. By
// default, Linux has them dropped, and after the first drop refuses batches that are too long for the path: throughput
// falls to one packet per timeout.
func allowFragments(network, _ string, c syscall.RawConn) error {
	level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
	if network == "udp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
	}
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), level, option, unix.IP_PMTUDISC_DONT)
	})
	if err != nil {
		return err
	}
	return failed
}
