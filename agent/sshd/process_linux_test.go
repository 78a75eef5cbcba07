package sshd_test

import (
	"context"

	"golang.org/x/sys/unix"
)

func pidfdOpen(pid int) (int, error) { return unix.PidfdOpen(pid, 0) }

// pollEnd blocks until the process behind a pidfd has ended.
func pollEnd(ctx context.Context, fd int) error {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 || err != nil && err != unix.EINTR {
			return err
		}
	}
	return ctx.Err()
}
