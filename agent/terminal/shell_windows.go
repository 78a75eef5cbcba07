package terminal

import (
	"fmt"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

// Launch starts a shell.
type Launch func(proc.Spec) (*proc.Process, error)

var launch Launch = proc.Start

// exitStatus is how a shell ended.
type exitStatus int

const exitKilled exitStatus = 137 // as on other systems

// shell is the program of a terminal with its pseudo console.
type shell struct {
	console *proc.Console
	program *proc.Process
	exited  chan exitStatus
}

func startShell(h *Holder, want Start) (*shell, error) {
	console, err := proc.NewConsole(want.Size.Width, want.Size.Height)
	if err != nil {
		return nil, err
	}
	s := &shell{console: console, exited: make(chan exitStatus, 1)}
	s.program, err = h.opts.Launch(proc.Spec{Path: want.Path, Args: want.Args, Dir: want.Directory, Env: want.Env,
		Console: console})
	if err != nil {
		console.HangUp()
		console.Close()
		return nil, fmt.Errorf("start %s: %w", want.Path, err)
	}
	go func() { s.exited <- exitStatus(s.program.Wait()) }()
	return s, nil
}

func (s *shell) Read(b []byte) (int, error)  { return s.console.Out.Read(b) }
func (s *shell) Write(b []byte) (int, error) { return s.console.In.Write(b) }

func (s *shell) resize(size ptywire.Size) error { return s.console.Resize(size.Width, size.Height) }

// redraw does nothing: the console has drawn what the scrollback contains.
func (s *shell) redraw() {}

// ended is called after the shell has ended, while its output is still read, which then ends.
func (s *shell) ended() { s.console.End() }

// close closes the terminal of an ended shell.
func (s *shell) close() {
	s.console.Close()
	s.program.Close()
}

func (s *shell) hangUp() { s.console.HangUp() }

func (s *shell) kill() { _ = s.program.Kill(int(exitKilled)) } // fails only if the processes are gone

func endOf(status exitStatus) ptywire.End { return ptywire.End{Code: int(status)} }
