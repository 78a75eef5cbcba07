package sshd

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// ownerOnly sets the mode with which the kernel creates the socket's file.
func ownerOnly(_, _ string, raw syscall.RawConn) error {
	var err error
	if ctlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); ctlErr != nil {
		return ctlErr
	}
	return err
}
