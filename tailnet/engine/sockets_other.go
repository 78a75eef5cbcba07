//go:build !linux

package engine

import "syscall"

// allowFragments does nothing: on other systems, UDP packets may be fragmented by default.
func allowFragments(_, _ string, _ syscall.RawConn) error { return nil }
