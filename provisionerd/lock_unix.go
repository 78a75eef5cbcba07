//go:build unix

package provisionerd

import (
	"os"
	"syscall"
)

// lockFile locks the file for this process until it is closed. It does not wait.
func lockFile(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
