package sshd

import (
	"os"

	"golang.org/x/sys/unix"
)

// growPipe makes a pipe larger if the user's quota allows it.
func growPipe(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return // a new pipe has one; without it the default size serves
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
}
