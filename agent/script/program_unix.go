//go:build unix

package script

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/codermesh/codermesh/v2/agent/proc"
)

// program is a script's interpreter, leader of its own session.
type program struct{ cmd *exec.Cmd }

// newProgram returns the program that runs a script, which is in the file at path.
func newProgram(s Script, env Environment, path string, vars *proc.Env) (*program, error) {
	args := append(interpreter(s.Text, env.User.Shell), path)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Env, cmd.Dir = vars.List(), env.Directory
	if info, err := os.Stat(cmd.Dir); err != nil || !info.IsDir() {
		cmd.Dir = env.User.Home
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return &program{cmd}, nil
}

func (p *program) start(output *os.File) error {
	p.cmd.Stdout, p.cmd.Stderr = output, output
	return p.cmd.Start()
}

func (p *program) pid() int { return p.cmd.Process.Pid }

func (p *program) wait() { _ = p.cmd.Wait() } // ProcessState has the status

// exitCode returns how the program ended, after wait.
func (p *program) exitCode() int {
	state := p.cmd.ProcessState
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// terminate asks the program and what it has started to end.
func (p *program) terminate() {
	_ = proc.SignalSession(p.cmd.Process.Pid, syscall.SIGTERM) // fails only if the processes are gone
}

// kill ends them.
func (p *program) kill() error { return proc.KillSession(p.cmd.Process.Pid) }

// fileName and fileText are those of the file that the interpreter reads.
func fileName(s Script) string { return s.ID.String() }

func fileText(s Script) []byte { return []byte(unixLines(s.Text)) }

// unixLines returns a script from Windows, whose first line ends with \r\n, as interpreters need it. Others stay as
// they are: in them a \r is a user's data.
func unixLines(text string) string {
	line, _, _ := strings.Cut(strings.TrimLeft(text, " \t\r\n"), "\n")
	if !strings.HasSuffix(line, "\r") {
		return text
	}
	return strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\r")
}

// interpreter returns the program and arguments of a script's first line (#!), or the user's shell.
func interpreter(text, shell string) []string {
	line, _, _ := strings.Cut(strings.TrimLeft(text, " \t\r\n"), "\n")
	rest, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return []string{shell}
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return []string{shell}
	}
	// As in the kernel, everything after the program is one argument; env -S splits it.
	if len(fields) > 1 {
		_, arg, _ := strings.Cut(strings.TrimSpace(rest), fields[0])
		return []string{fields[0], strings.TrimSpace(arg)}
	}
	return fields
}

// openLog opens a log file to append to, and makes it and its folder if necessary. Every account of the machine may
// write to /tmp, where most log files are: openLog refuses what another account has put there, which could be a link to
// a file of this account's, be readable by others, or be a pipe without a reader. The kernel refuses some of that where
// fs.protected_symlinks, protected_regular and protected_fifos say so.
func openLog(path string) (*os.File, error) {
	if err := proc.Guard(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	const flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND | syscall.O_NONBLOCK // a pipe without a reader is an error
	file, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		if err := proc.Guard(path); err != nil {
			return nil, err
		}
		return os.OpenFile(path, flags, 0o600) // a link of this account's, which no other can replace
	}
	if err != nil {
		return nil, err
	}
	// Another account may have been faster since Guard looked.
	info, err := file.Stat()
	shared, sharedErr := proc.OpenToAll(filepath.Dir(path))
	if err := errors.Join(err, sharedErr); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if shared && !proc.IsOwn(info) {
		return nil, errors.Join(fmt.Errorf("%s belongs to another account", path), file.Close())
	}
	return file, nil
}
