package sshd

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// privateSocket sets the mode that the socket's file will be created with.
func privateSocket(_, _ string, raw syscall.RawConn) error {
	var err error
	if ctlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); ctlErr != nil {
		return ctlErr
	}
	return err
}
