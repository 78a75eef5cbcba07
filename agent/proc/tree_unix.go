//go:build unix

package proc

import (
	"errors"
	"fmt"
	"syscall"
)

// signalGroup sends sig to a process group. A group that is gone is not an error.
func signalGroup(group int, sig syscall.Signal) error {
	if group <= 1 {
		return fmt.Errorf("signal process group %d: it is none that was begun here", group) // kill(2) takes such numbers for everybody
	}
	if err := syscall.Kill(-group, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
