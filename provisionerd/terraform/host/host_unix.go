//go:build unix

package host

import (
	"io/fs"
	"os"
	"syscall"
)

// noFollow makes opening a file fail if the last part of its name is a link.
const noFollow = syscall.O_NOFOLLOW

// status is what the kernel knows about a file beyond fs.FileInfo.
type status struct {
	uid, gid int
	links    uint64
	used     uint64 // bytes on the disk
}

func statusOf(info fs.FileInfo) (status, bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return status{}, false
	}
	return status{uid: int(s.Uid), gid: int(s.Gid), links: uint64(s.Nlink), used: uint64(s.Blocks) * 512}, true
}

// tryLock locks a file for this process, or fails if another open file holds the lock.
func tryLock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// waitLock waits for a file's lock. Signals to this thread, such as the Go runtime's, do not interrupt it.
func waitLock(file *os.File) error {
	for {
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}

func kill(pid int, sign syscall.Signal) error { return syscall.Kill(pid, sign) }
