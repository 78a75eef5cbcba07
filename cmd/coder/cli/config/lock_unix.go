//go:build unix

package config

import (
	"os"
	"syscall"
)

// Lock blocks until the file is this process's alone. Closing it unlocks it.
func Lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }
