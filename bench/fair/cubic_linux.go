package main

import "golang.org/x/sys/unix"

// useCUBIC selects the congestion control of a socket.
func useCUBIC(fd int) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
}
