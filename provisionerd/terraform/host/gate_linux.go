package host

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// maxAncestors bounds how many generations a process may be below its job's Terraform.
const maxAncestors = 128

// admitJob returns a function that admits the processes of one job: those of the account uid (0: ours) that are the
// process noted in one of the files, or descend from it. So a job reaches its own worker and no other, even if several
// jobs share an account.
func admitJob(uid int, pidFiles []string) func(*net.UnixConn) error {
	if uid == 0 {
		uid = os.Geteuid()
	}
	return func(conn *net.UnixConn) error {
		var peer *unix.Ucred
		var fdErr error
		handle := -1
		if err := netio.Control(conn, func(fd int) (err error) {
			peer, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
			handle, fdErr = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
			return err
		}); err != nil {
			return fmt.Errorf("ask who connects: %w", err)
		}
		if fdErr == nil {
			unix.CloseOnExec(handle)
			defer unix.Close(handle)
		} else if !errors.Is(fdErr, unix.ENOPROTOOPT) { // kernels before 6.5 have no handle
			return fmt.Errorf("process %d has ended: %w", peer.Pid, fdErr)
		}
		if int(peer.Uid) != uid {
			return fmt.Errorf("process %d has the account %d, and the job has %d", peer.Pid, peer.Uid, uid)
		}
		for _, name := range pidFiles {
			root, err := readProcess(name)
			if err != nil || !descends(int(peer.Pid), root) {
				continue
			}
			if fdErr == nil && ended(handle) { // another process may have got its number
				return fmt.Errorf("process %d has ended", peer.Pid)
			}
			return nil
		}
		return fmt.Errorf("process %d does not belong to the job", peer.Pid)
	}
}

// descends reports whether a process is root or below it. A parent is older than its child; if it is not, another
// process has got the parent's number.
func descends(pid int, root sandbox.Process) bool {
	youngest := ^uint64(0)
	for range maxAncestors {
		parent, started, err := parentOf(pid)
		if err != nil || started > youngest {
			return false
		}
		if pid == root.PID {
			return root.Alive() && started == root.Start
		}
		if parent <= 1 {
			return false
		}
		pid, youngest = parent, started
	}
	return false
}

// parentOf returns a process's parent, and when the process started, in clock ticks after boot.
func parentOf(pid int) (parent int, started uint64, err error) {
	if pid <= 0 {
		return 0, 0, errors.New("no process") // of a namespace that is not below ours
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// The second field is the command in parentheses and may hold anything.
	end := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[end+1:])
	if end < 0 || len(fields) < 20 {
		return 0, 0, errors.New("read process: unexpected format")
	}
	parent, perr := strconv.Atoi(string(fields[1]))
	started, serr := strconv.ParseUint(string(fields[19]), 10, 64)
	return parent, started, errors.Join(perr, serr)
}

// ended reports whether the process of a handle has ended.
func ended(handle int) bool {
	fds := []unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			continue // happens even without a wait: the Go runtime signals its threads, the more so under load
		}
		return err != nil || n > 0
	}
}
