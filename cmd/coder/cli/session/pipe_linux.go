package session

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is what a pipe may hold, in bytes. The system's 64 KiB make writer and reader wait for each other all the time.
const pipeSize = 1 << 20

// widenPipe makes a pipe hold more. What is no pipe, or may not, stays as it is.
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
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) // only speed depends on it
	})
}
