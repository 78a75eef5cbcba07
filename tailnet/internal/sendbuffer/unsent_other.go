//go:build !linux && !darwin

package sendbuffer

import "net"

func limitUnsent(*net.TCPConn) {}
