package engine

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// watchNetlink returns what has bytes to read whenever interfaces, addresses or routes of the machine change
// (rtnetlink(7)). A read may fail with ENOBUFS: so much has changed that some of it was left out.
func watchNetlink() (io.ReadCloser, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch routes: %w", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}
