//go:build unix

package terminal

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

// quiet is how long a terminal whose shell has ended must be silent before it is closed: a background job may keep it
// open forever.
const quiet = 300 * time.Millisecond

// Launch starts a program with the terminal as its standard streams, and returns a channel that receives its exit
// status. The arguments are those of os.StartProcess.
type Launch func(path string, args []string, attr *os.ProcAttr) (pid int, exited <-chan syscall.WaitStatus, err error)

// launch is the default Launch, for a process that does not reap children in another way.
func launch(path string, args []string, attr *os.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	p, err := os.StartProcess(path, args, attr)
	if err != nil {
		return 0, nil, err
	}
	exited := make(chan syscall.WaitStatus, 1)
	go func() {
		state, err := p.Wait()
		var status syscall.WaitStatus
		if err == nil {
			status, _ = state.Sys().(syscall.WaitStatus)
		}
		exited <- status
	}()
	return p.Pid, exited, nil
}

// exitStatus is how a shell ended.
type exitStatus = syscall.WaitStatus

// shell is the program of a terminal with its pseudo terminal.
type shell struct {
	master *os.File
	pid    int
	exited <-chan exitStatus
}

// startShell starts the shell in a session of its own.
func startShell(h *Holder, want Start) (*shell, error) {
	ptmx, tty, err := pty.Open()
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	defer ptmx.Close()
	defer tty.Close()
	// The library leaves ptmx in blocking mode, in which a Read cannot be interrupted. The poller gets a duplicate.
	fd, err := unix.FcntlInt(ptmx.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	s := &shell{master: os.NewFile(uintptr(fd), "ptmx")}
	size := ptywire.Size{Height: 24, Width: 80}
	if want.Size.Height > 0 && want.Size.Width > 0 {
		size = want.Size
	}
	if err := s.resize(size); err != nil {
		h.log.Debug("cannot resize terminal", "err", err)
	}
	attr := &os.ProcAttr{
		Dir: want.Directory, Env: want.Env, Files: []*os.File{tty, tty, tty},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true},
	}
	if s.pid, s.exited, err = h.opts.Launch(want.Path, want.Args, attr); err != nil {
		s.master.Close()
		return nil, fmt.Errorf("start %s: %w", want.Path, err)
	}
	if err := proc.PreferAsVictim(s.pid); err != nil {
		h.log.Debug("cannot set memory preference", "err", err)
	}
	return s, nil
}

func (s *shell) Read(b []byte) (int, error) { return s.master.Read(b) }

// Write fails once the terminal has ended, but not while no process has it open.
func (s *shell) Write(b []byte) (int, error) {
	n, err := s.master.Write(b)
	if errors.Is(err, syscall.EIO) {
		return len(b), nil
	}
	return n, err
}

func (s *shell) resize(size ptywire.Size) error {
	return netio.Control(s.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
	})
}

// redraw asks the program in the foreground to redraw: the scrollback does not restore a full-screen program.
func (s *shell) redraw() {
	_ = netio.Control(s.master, func(fd int) error {
		group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		if err == nil && group > 1 {
			err = syscall.Kill(-group, syscall.SIGWINCH)
		}
		return err
	})
}

// ended is called after the shell has ended, while its output is still read: reading then ends once the terminal is
// silent.
func (s *shell) ended() {
	_ = s.master.SetReadDeadline(time.Now().Add(quiet)) // fails only once it is closed
}

// close closes the terminal of an ended shell, and hangs up what has it open.
func (s *shell) close() {
	s.master.Close()
	s.hangUp()
}

func (s *shell) hangUp() { _ = proc.SignalSession(s.pid, syscall.SIGHUP) } // fails only if the processes are gone

func (s *shell) kill() { _ = proc.SignalSession(s.pid, syscall.SIGKILL) }

func endOf(status exitStatus) ptywire.End {
	if status.Signaled() {
		return ptywire.End{Code: 128 + int(status.Signal()), Reason: "ended by " + status.Signal().String()}
	}
	return ptywire.End{Code: status.ExitStatus()}
}
