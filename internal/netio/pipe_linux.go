package netio

import (
	"os"

	"golang.org/x/sys/unix"
)

// GrowPipe enlarges a pipe to size bytes, because with the default of 64 KiB writer and reader often wait for each
// other. It does nothing for other files, on other systems, or if the system refuses.
func GrowPipe(f *os.File, size int) {
	_ = Control(f, func(fd int) error { // it affects only speed
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size)
		return err
	})
}
