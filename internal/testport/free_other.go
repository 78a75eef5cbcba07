//go:build !linux

package testport

import (
	"net"
	"strconv"
)

// isFree reports whether no program listens at a TCP port, at any address of either family.
func isFree(port int) bool {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	return err == nil && l.Close() == nil
}
