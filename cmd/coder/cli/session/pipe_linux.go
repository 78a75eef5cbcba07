package session

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is the capacity of a pipe in bytes. With the default of 64 KiB, writer and reader constantly wait for each other.
const pipeSize = 1 << 20

// widenPipe enlarges a pipe. It does nothing for other streams, or if the system refuses.
func widenPipe(stream any) {
	f, ok := stream.(*os.File)
	if !ok {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) // it affects only speed
	})
}
