//go:build unix

package proc

import (
	"errors"
	"syscall"
)

// signalGroup sends sig to a process group. A group that is gone is no error.
func signalGroup(group int, sig syscall.Signal) error {
	if err := syscall.Kill(-group, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
