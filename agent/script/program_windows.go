package script

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/codermesh/codermesh/v2/agent/proc"
)

// program is a script's interpreter with everything that it starts.
type program struct {
	spec    proc.Spec
	process *proc.Process
	code    int
}

// exitTerminated is the status of scripts that were ended, as on other systems.
const exitTerminated = 143

// newProgram returns the program that runs a script, which is in the file at file.
func newProgram(s Script, env Environment, file string, vars *proc.Env) (*program, error) {
	name, args := interpreter(s.Text, env.User.Shell)
	at, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("the script's first line names %s, which is not on this machine's PATH", name)
	}
	if err != nil {
		return nil, err
	}
	if at, err = filepath.Abs(at); err != nil {
		return nil, err
	}
	if kind(name) == "cmd" {
		file = `"` + file + `"` // the outer quotes, which proc adds, are removed
	}
	args = append(append([]string{at}, args...), file)
	return &program{spec: proc.Spec{Path: at, Args: args, Dir: env.User.Existing(env.Directory), Env: vars.List()}}, nil
}

func (p *program) start(output *os.File) (err error) {
	p.spec.Files[1], p.spec.Files[2] = output, output
	p.process, err = proc.Start(p.spec)
	return err
}

func (p *program) pid() int { return p.process.Pid }

func (p *program) wait() {
	p.code = p.process.Wait()
	p.process.Close()
}

// exitCode returns how the program ended, after wait.
func (p *program) exitCode() int { return p.code }

// terminate ends the program and what it has started: this system cannot ask them to end.
func (p *program) terminate() { _ = p.kill() } // the caller calls kill again

func (p *program) kill() error { return p.process.Kill(exitTerminated) }

// interpreter returns the program that the first line (#!) of a script names, with its arguments, or else PowerShell.
// Of a path that only other systems have, such as /bin/bash or /usr/bin/env bash, it returns the program's name, which
// PATH finds.
func interpreter(text, shell string) (name string, args []string) {
	name = "powershell"
	if kind(shell) == "pwsh" {
		name = shell
	}
	if rest, ok := strings.CutPrefix(firstLine(text), "#!"); ok {
		fields := strings.Fields(rest)
		if len(fields) > 1 && path.Base(fields[0]) == "env" {
			fields = fields[1:]
			if len(fields) > 1 && fields[0] == "-S" {
				fields = fields[1:]
			}
		}
		if len(fields) > 0 {
			name, args = fields[0], fields[1:]
		}
		if strings.HasPrefix(name, "/") {
			name = path.Base(name)
		}
	}
	switch kind(name) {
	case "powershell", "pwsh":
		args = append(args, "-NoLogo", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File")
	case "cmd":
		args = append(args, "/d", "/q", "/s", "/c")
	}
	return name, args
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimLeft(text, " \t\r\n"), "\n")
	return strings.TrimRight(line, "\r")
}

// kind returns the name of an interpreter without folder and ending.
func kind(name string) string {
	return strings.TrimSuffix(strings.ToLower(filepath.Base(name)), ".exe")
}

// fileName returns the name of the script's file. PowerShell and cmd.exe tell from its ending what is in it.
func fileName(s Script) string {
	switch name, _ := interpreter(s.Text, ""); kind(name) {
	case "powershell", "pwsh":
		return s.ID.String() + ".ps1"
	case "cmd":
		return s.ID.String() + ".cmd"
	}
	return s.ID.String()
}

// fileText returns a script as its interpreter reads it: PowerShell 5.1 takes a text without a byte order mark for one
// of the system's code page, cmd.exe finds labels only in lines that end with \r\n and would run the first line, and
// others run on Unix, too.
func fileText(s Script) []byte {
	text := strings.ReplaceAll(s.Text, "\r\n", "\n")
	switch name, _ := interpreter(s.Text, ""); kind(name) {
	case "powershell", "pwsh":
		return []byte("\uFEFF" + s.Text)
	case "cmd":
		if strings.HasPrefix(firstLine(text), "#!") {
			_, text, _ = strings.Cut(strings.TrimLeft(text, " \t\n"), "\n")
		}
		return []byte(strings.ReplaceAll(text, "\n", "\r\n"))
	}
	return []byte(text)
}

// openLog opens a log file to append to, and makes it and its folder if necessary.
func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}
