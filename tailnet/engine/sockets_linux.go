package engine

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// allowFragments lets routers cut packets that are too long for a path, as WireGuard in the kernel does. By Linux's default they
// are dropped, and after the first one batches are refused for which the path is too narrow: what is left is a packet per timeout.
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
