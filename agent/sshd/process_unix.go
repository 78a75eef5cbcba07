//go:build unix

package sshd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/netio"
)

func init() {
	signals["USR1"], signals["USR2"] = syscall.SIGUSR1, syscall.SIGUSR2
}

const (
	stdoutFile = 1 // index in process.ours

	pipeSize = 256 << 10 // bytes; fewer switches between the program and the agent
	// ptyQuiet is how long a terminal whose program has ended must be silent before it is closed, if the kernel does
	// not end it.
	ptyQuiet = 300 * time.Millisecond
)

// processSpec describes the program to start.
type processSpec struct {
	shell   string
	command string // empty: a login shell
	dir     string
	home    string
	env     *proc.Env
	pty     *ptyRequest // nil: pipes
}

// process is a running program, leader of its own session and process group.
type process struct {
	cmd *exec.Cmd
	pid int
	pty bool

	stdin  io.WriteCloser
	stdout io.Reader
	stderr io.Reader  // nil with a terminal
	ours   []*os.File // of pipes in the order of the standard files
	close  sync.Once

	ended  atomic.Bool
	exited chan struct{} // closed by wait
	hungUp sync.Once
}

// startProcess starts the program. The caller must call wait, on a goroutine that may live as long as the program.
func startProcess(spec processSpec) (*process, error) {
	cmd := &exec.Cmd{Path: spec.shell, Args: proc.CommandArgs(spec.shell, spec.command),
		Dir: proc.User{Home: spec.home}.Existing(spec.dir)}
	if spec.command == "" {
		cmd.Args = proc.LoginArgs(spec.shell)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	theirs, err := p.open(spec)
	if err == nil {
		cmd.Env = spec.env.List()
		err = cmd.Start()
	}
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		p.closeFiles()
		return nil, fmt.Errorf("start %s: %w", spec.shell, err)
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

// open opens the program's files. The caller must close theirs once the program has started, even after an error.
func (p *process) open(spec processSpec) (theirs []*os.File, err error) {
	if spec.pty != nil {
		return p.openPTY(spec)
	}
	var in, out, errs [2]*os.File
	for _, pair := range []*[2]*os.File{&in, &out, &errs} {
		if pair[0], pair[1], err = os.Pipe(); err != nil {
			return theirs, err
		}
		theirs = append(theirs, pair[0], pair[1])
	}
	theirs = []*os.File{in[0], out[1], errs[1]}
	p.ours = []*os.File{in[1], out[0], errs[0]}
	netio.GrowPipe(in[1], pipeSize)
	netio.GrowPipe(out[0], pipeSize)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in[0], out[1], errs[1]
	p.stdin, p.stdout, p.stderr = in[1], out[0], errs[0]
	return theirs, nil
}

func (p *process) openPTY(spec processSpec) (theirs []*os.File, err error) {
	ptmx, tty, err := pty.Open()
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	theirs = []*os.File{ptmx, tty}
	// The library's calls leave ptmx in blocking mode, in which a Read cannot be interrupted. The poller gets a
	// duplicate.
	fd, err := unix.FcntlInt(ptmx.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return theirs, fmt.Errorf("open terminal: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return theirs, fmt.Errorf("open terminal: %w", err)
	}
	master := os.NewFile(uintptr(fd), "ptmx")
	p.ours, p.pty = []*os.File{master}, true
	p.stdin, p.stdout = master, &terminalOutput{p, master}
	if err := p.resize(windowChange{spec.pty.Columns, spec.pty.Rows, spec.pty.WidthPixels,
		spec.pty.HeightPx}); err != nil {
		return theirs, fmt.Errorf("set terminal size: %w", err)
	}
	if err := setModes(tty, spec.pty.Modes); err != nil {
		return theirs, fmt.Errorf("set terminal modes: %w", err)
	}
	spec.env.Set("SSH_TTY", tty.Name())
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr.Setctty = true
	return theirs, nil
}

// wait blocks until the program has ended.
func (p *process) wait() {
	_ = p.cmd.Wait() // the error repeats the status
	p.ended.Store(true)
	close(p.exited)
}

// drain is called after the program has ended: it reads a terminal that other processes keep open only until it is
// silent.
func (p *process) drain() {
	if p.pty {
		_ = p.ours[0].SetReadDeadline(time.Now().Add(ptyQuiet)) // fails only once it is closed
	}
}

// status blocks until the program has ended or was hung up.
func (p *process) status() exitStatus {
	defer p.closeFiles()
	select {
	case <-p.exited:
	default:
		return exitStatus{code: 128 + int(syscall.SIGHUP)}
	}
	ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return exitStatus{code: p.cmd.ProcessState.ExitCode()}
	}
	if !ws.Signaled() {
		return exitStatus{code: ws.ExitStatus()}
	}
	status := exitStatus{code: 128 + int(ws.Signal()), core: ws.CoreDump()}
	for name, sig := range signals {
		if sig == ws.Signal() {
			status.signal = name
		}
	}
	return status
}

// signal signals the program's process group and, with a terminal, the job in its foreground.
func (p *process) signal(sig syscall.Signal) error {
	if p.ended.Load() {
		return os.ErrProcessDone
	}
	err := syscall.Kill(-p.pid, sig)
	if p.pty {
		if group := p.foreground(); group > 0 && group != p.pid {
			err = syscall.Kill(-group, sig)
		}
	}
	return err
}

func (p *process) foreground() (group int) {
	_ = netio.Control(p.ours[0], func(fd int) error {
		var err error
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	return group
}

// hangUp ends the program's input and output and sends SIGHUP to everything it started. It does not wait.
func (p *process) hangUp() {
	p.hungUp.Do(func() {
		if !p.ended.Load() {
			_ = proc.SignalSession(p.pid, syscall.SIGHUP) // fails only if the processes are gone
		}
		p.closeFiles()
	})
}

// endOutput makes the program's next write to its standard output fail. A terminal cannot do that, so its program is
// hung up.
func (p *process) endOutput() {
	if p.pty {
		p.hangUp()
		return
	}
	p.ours[stdoutFile].Close()
}

// kill ends the program and everything it started.
func (p *process) kill() { _ = proc.SignalSession(p.pid, syscall.SIGKILL) }

func (p *process) closeFiles() {
	p.close.Do(func() {
		for _, f := range p.ours {
			f.Close()
		}
	})
}

func (p *process) resize(win windowChange) error {
	if !p.pty {
		return nil
	}
	size := &unix.Winsize{Row: clamp(win.Rows), Col: clamp(win.Columns), Xpixel: clamp(win.WidthPixels),
		Ypixel: clamp(win.HeightPx)}
	return netio.Control(p.ours[0], func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
}

func clamp(n uint32) uint16 { return uint16(min(n, 1<<16-1)) }

// isEnd reports whether an error just means the end of the program's output.
func (p *process) isEnd(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EIO)
}

// terminalOutput reads a terminal until no process has it open (EIO on Linux), or its program has ended and it is
// silent.
type terminalOutput struct {
	p      *process
	master *os.File
}

func (t *terminalOutput) Read(b []byte) (int, error) {
	if t.p.ended.Load() {
		_ = t.master.SetReadDeadline(time.Now().Add(ptyQuiet)) // fails only once it is closed
	}
	n, err := t.master.Read(b)
	if errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}
