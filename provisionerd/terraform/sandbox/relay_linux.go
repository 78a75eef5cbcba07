package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// relay passes on what a sandbox's program prints. Once nothing reads it, because the daemon was killed, relay writes
// it to a file in the job's folder: the program must be able to print, or the kernel ends it before it has saved its
// state.
type relay struct {
	from   *os.File
	to     io.Writer
	name   string // of the file; empty for none
	file   *os.File
	broken bool
	over   chan struct{}
}

// awaitDeath asks the program to end once nothing reads this process's output, which means that the daemon was killed.
// The signal that the kernel sends at a parent's death does not reach a process of another account when bubblewrap has
// given up its capabilities.
func awaitDeath(asked chan<- os.Signal) {
	out := []unix.PollFd{{Fd: 1}} // only its end is reported
	for {
		_, err := unix.Poll(out, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil {
			asked <- syscall.SIGTERM
		}
		return
	}
}

// newRelay starts to relay to a file, and returns the descriptor that the program must write to. The caller closes it.
func newRelay(to io.Writer, name string) (*relay, int, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, 0, fmt.Errorf("make pipe: %w", err)
	}
	// Only this end: the program's must block.
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("make pipe: %w", err), unix.Close(ends[0]), unix.Close(ends[1]))
	}
	// This turns a write that nothing reads into an error instead of the end of this process. The signal is not
	// ignored, because programs inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	r := &relay{from: os.NewFile(uintptr(ends[0]), name), to: to, name: name, over: make(chan struct{})}
	go r.run()
	return r, ends[1], nil
}

func (r *relay) run() {
	defer close(r.over)
	buf := make([]byte, 64<<10)
	for {
		n, err := r.from.Read(buf)
		r.write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r.drain(buf)
			return
		}
		if err != nil {
			return
		}
	}
}

// drain reads what the program had printed when it ended. What it left in the background may keep the pipe open
// forever.
func (r *relay) drain(buf []byte) {
	if err := r.from.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	conn, err := r.from.SyscallConn()
	if err != nil {
		return
	}
	// Read fails only if the pipe is closed: then there is nothing left.
	_ = conn.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), buf)
			if n <= 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return true
			}
			r.write(buf[:n])
		}
	})
}

func (r *relay) write(data []byte) {
	if !r.broken && len(data) > 0 {
		n, err := r.to.Write(data)
		if err == nil {
			return
		}
		r.broken, data = true, data[n:]
		// Without the file the output is lost, but the state is still saved.
		if r.name == "" {
			return
		}
		r.file, _ = os.OpenFile(r.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	}
	if r.file != nil {
		_, _ = r.file.Write(data)
	}
}

// finish is called when the program has ended. It waits until everything that the program printed has been passed on.
func (r *relay) finish() {
	if err := r.from.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return
	}
	<-r.over
}
