package config

import (
	"os"

	"golang.org/x/sys/windows"
)

// Lock blocks until this process has the file's lock. Closing the file releases the lock.
func Lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}
