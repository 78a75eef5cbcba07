//go:build unix

package proc

import (
	"errors"
	"fmt"
	"syscall"
)

// signalGroup sends sig to a process group. It ignores a group that is gone.
func signalGroup(group int, sig syscall.Signal) error {
	if group <= 1 {
		// kill(2) takes such numbers for all processes
		return fmt.Errorf("signal process group %d: this process did not start it", group)
	}
	if err := syscall.Kill(-group, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
