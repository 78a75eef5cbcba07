//go:build unix

package devcontainer

import (
	"os/exec"
	"syscall"

	"github.com/codermesh/codermesh/v2/agent/proc"
)

// ownSession makes a program the leader of a session, whose programs all end with its context.
func ownSession(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return proc.KillSession(cmd.Process.Pid) }
}
