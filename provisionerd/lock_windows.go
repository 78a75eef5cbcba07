package provisionerd

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile locks the file for this process until it is closed. It does not wait.
func lockFile(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
}
