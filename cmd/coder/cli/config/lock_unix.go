//go:build unix

package config

import (
	"os"
	"syscall"
)

// Lock blocks until this process has the file's lock. Closing the file releases the lock.
func Lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }
