package sendbuffer

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// grants reports whether a socket that asks for wanted gets more than the system would grow its buffer to. A socket
// that has asked no longer grows, so a socket of its own finds out: net.core.wmem_max, which bounds what a socket may
// ask for, cannot be read in a container.
var grants = sync.OnceValue(func() bool {
	granted, err := ask()
	if err != nil {
		return false
	}
	most, err := grown()
	return err == nil && granted > most
})

// ask returns the size in bytes that the system grants to a socket that asks for wanted.
func ask() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, wanted); err != nil {
		return 0, err
	}
	return unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
}

// grown returns the size in bytes to which the system grows send buffers (tcp(7), tcp_wmem).
func grown() (int, error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_wmem")
	if err != nil {
		return 0, err
	}
	var least, first, most int
	_, err = fmt.Sscan(string(text), &least, &first, &most)
	return most, err
}
