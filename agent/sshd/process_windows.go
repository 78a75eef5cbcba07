package sshd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/codermesh/codermesh/v2/agent/proc"
)

// processSpec describes the program to start.
type processSpec struct {
	shell   string
	command string // empty: an interactive shell
	dir     string
	home    string
	env     *proc.Env
	pty     *ptyRequest // nil: pipes
}

// process is a running program with everything that it has started.
type process struct {
	program *proc.Process
	pid     int
	pty     bool
	console *proc.Console // nil without a terminal

	stdin  io.WriteCloser
	stdout io.Reader
	stderr io.Reader  // nil with a terminal
	ours   []*os.File // of pipes in the order of the standard files
	close  sync.Once

	ended  atomic.Bool
	code   int           // set before exited is closed
	exited chan struct{} // closed by wait
	hungUp sync.Once
}

// Exit statuses of programs that were ended, as other systems have them.
const (
	exitHangUp = 128 + int(syscall.SIGHUP)
	exitKilled = 128 + int(syscall.SIGKILL)
)

// startProcess starts the program. The caller must call wait, on a goroutine that may live as long as the program.
func startProcess(spec processSpec) (*process, error) {
	args := proc.LoginArgs(spec.shell)
	if spec.command != "" {
		args = proc.CommandArgs(spec.shell, spec.command)
	}
	p := &process{exited: make(chan struct{})}
	start := proc.Spec{Path: spec.shell, Args: args, Dir: proc.User{Home: spec.home}.Existing(spec.dir),
		Env: spec.env.List()}
	theirs, err := p.open(spec, &start)
	if err == nil {
		p.program, err = proc.Start(start)
	}
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		if p.console != nil {
			p.console.HangUp()
		}
		p.closeFiles()
		return nil, fmt.Errorf("start %s: %w", spec.shell, err)
	}
	p.pid = p.program.Pid
	return p, nil
}

// open opens the program's files. The caller must close theirs once the program has started, even after an error.
func (p *process) open(spec processSpec, start *proc.Spec) (theirs []*os.File, err error) {
	if spec.pty != nil {
		p.console, err = proc.NewConsole(clamp(spec.pty.Columns), clamp(spec.pty.Rows))
		if err != nil {
			return nil, err
		}
		p.pty, start.Console = true, p.console
		p.stdin, p.stdout = p.console.In, p.console.Out
		return nil, nil
	}
	for i := range start.Files {
		read, write, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		if i == 0 {
			read, write = write, read
		}
		p.ours, theirs = append(p.ours, read), append(theirs, write)
		start.Files[i] = write
	}
	p.stdin, p.stdout, p.stderr = p.ours[0], p.ours[1], p.ours[2]
	return theirs, nil
}

func clamp(n uint32) uint16 { return uint16(min(n, 1<<16-1)) }

// wait blocks until the program has ended.
func (p *process) wait() {
	p.code = p.program.Wait()
	p.program.Close()
	p.ended.Store(true)
	close(p.exited)
}

// drain is called after the program has ended: a terminal ends with its program.
func (p *process) drain() {
	if p.pty {
		p.console.End()
	}
}

// status blocks until the program has ended or was hung up.
func (p *process) status() exitStatus {
	defer p.closeFiles()
	select {
	case <-p.exited:
		return exitStatus{code: p.code}
	default:
		return exitStatus{code: exitHangUp}
	}
}

// signal interrupts the program like Ctrl-C, where it has a terminal, or ends it with everything that it started. The
// system has no other signals.
func (p *process) signal(sig syscall.Signal) error {
	if p.ended.Load() {
		return os.ErrProcessDone
	}
	if p.pty && sig == syscall.SIGINT {
		_, err := p.stdin.Write([]byte{3})
		return err
	}
	return p.program.Kill(128 + int(sig))
}

// hangUp ends the program and everything it has started: with a terminal they are asked first.
func (p *process) hangUp() {
	p.hungUp.Do(func() {
		switch {
		case p.pty:
			p.console.HangUp()
		case !p.ended.Load():
			_ = p.program.Kill(exitHangUp) // fails only if the processes are gone
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
	p.ours[1].Close()
}

// kill ends the program and everything it started.
func (p *process) kill() { _ = p.program.Kill(exitKilled) }

func (p *process) closeFiles() {
	p.close.Do(func() {
		for _, f := range p.ours {
			f.Close()
		}
		if p.console != nil {
			p.console.Close()
		}
	})
}

func (p *process) resize(win windowChange) error {
	if !p.pty {
		return nil
	}
	return p.console.Resize(clamp(win.Columns), clamp(win.Rows))
}

// isEnd reports whether an error just means the end of the program's output.
func (p *process) isEnd(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.ERROR_BROKEN_PIPE)
}
