package testport

import "syscall"

// isFree reports whether no program listens at a TCP port, at any address of either family. It does not listen itself:
// a process that another goroutine starts has a copy of all sockets until it executes its program, and the port would
// be taken meanwhile. A copy of a socket that is only bound, with SO_REUSEADDR, does not keep others from listening
// (socket(7)).
func isFree(port int) bool {
	family, all := syscall.AF_INET6, syscall.Sockaddr(&syscall.SockaddrInet6{Port: port})
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == syscall.EAFNOSUPPORT {
		family, all = syscall.AF_INET, &syscall.SockaddrInet4{Port: port}
		fd, err = syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	if family == syscall.AF_INET6 && syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, 0) != nil {
		return false
	}
	return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) == nil && syscall.Bind(fd, all) == nil
}
