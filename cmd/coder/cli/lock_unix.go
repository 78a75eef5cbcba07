//go:build unix

package cli

import (
	"os"
	"syscall"
)

// lockFile blocks until the file is this process's alone. Closing it unlocks it.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }
