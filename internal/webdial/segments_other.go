//go:build !unix

package webdial

import "syscall"

func limitSegments(_, _ string, _ syscall.RawConn) error { return nil }
