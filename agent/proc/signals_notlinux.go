//go:build unix && !linux

package proc

import "syscall"

func isIgnored() func(syscall.Signal) bool { return runtimeIgnores }
