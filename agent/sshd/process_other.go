//go:build !unix

package sshd

import (
	"errors"
	"io"
	"syscall"

	"github.com/codermesh/codermesh/v2/agent/proc"
)

var errUnsupported = errors.New("sessions need a Unix system; workspaces run on Linux")

type processSpec struct {
	shell, command, dir, home string
	env                       *proc.Env
	pty                       *ptyRequest
}

// process exists on Unix only: startProcess fails.
type process struct {
	pid            int
	pty            bool
	stdin          io.WriteCloser
	stdout, stderr io.Reader
	exited         chan struct{}
}

func startProcess(processSpec) (*process, error) { return nil, errUnsupported }
func (p *process) wait()                         {}
func (p *process) drain()                        {}
func (p *process) status() exitStatus            { return exitStatus{code: exitNotStarted} }
func (p *process) signal(syscall.Signal) error   { return errUnsupported }
func (p *process) hangUp()                       {}
func (p *process) endOutput()                    {}
func (p *process) kill()                         {}
func (p *process) resize(windowChange) error     { return errUnsupported }
func (p *process) isEnd(error) bool              { return true }
