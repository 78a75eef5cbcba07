package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile blocks until the file is this process's alone. Closing it unlocks it.
func lockFile(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}
