package autostart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/shell"
)

const (
	programName = "coder"
	unitName    = "codermesh-agent.service"
)

// protect does nothing: the modes of files say who may read them.
func protect(string) error { return nil }

// setAside does nothing: a program that runs can be replaced.
func setAside(string) {}

// remove removes the folder of the service, whose program may run.
func remove(folder string) error { return os.RemoveAll(folder) }

// unitFile returns where the unit is: among the machine's, or among the account's.
func (o Options) unitFile() string {
	if o.Machine {
		return filepath.Join("/etc/systemd/system", unitName)
	}
	return filepath.Join(o.Home, ".config", "systemd", "user", unitName)
}

func (o Options) systemctl(ctx context.Context, args ...string) error {
	if !o.Machine {
		args = append([]string{"--user"}, args...)
	}
	return o.command(ctx, "systemctl", args...)
}

// available reports whether the machine, or the account, has a systemd.
func available(ctx context.Context, o Options) error {
	if err := o.systemctl(ctx, "show-environment"); err != nil {
		return fmt.Errorf("systemd does not answer: %w", err)
	}
	return nil
}

func register(ctx context.Context, o Options) (note string, err error) {
	if err := os.MkdirAll(filepath.Dir(o.unitFile()), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(o.unitFile(), []byte(unit(o, os.LookupEnv)), 0o644); err != nil {
		return "", err
	}
	if err := o.systemctl(ctx, "daemon-reload"); err != nil {
		return "", err
	}
	if err := o.systemctl(ctx, "enable", unitName); err != nil {
		return "", err
	}
	// The command may run in a session of the very agent that ends now.
	if err := o.systemctl(ctx, "restart", "--no-block", unitName); err != nil {
		return "", err
	}
	if !o.Machine {
		if err := o.command(ctx, "loginctl", "enable-linger", o.Account); err != nil {
			return fmt.Sprintf("The agent runs only while %s is logged in (%v). To start it with the machine: "+
				"sudo loginctl enable-linger %s", o.Account, err, shell.Word(o.Account)), nil
		}
	}
	return "", nil
}

func unregister(ctx context.Context, o Options) error {
	err := o.systemctl(ctx, "disable", unitName)
	if removed := os.Remove(o.unitFile()); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return errors.Join(err, o.systemctl(ctx, "daemon-reload"), o.systemctl(ctx, "stop", "--no-block", unitName))
}

// unit returns the text of the service's unit.
func unit(o Options, env func(string) (string, bool)) string {
	var b strings.Builder
	b.WriteString("# Made by `coder agent install`.\n[Unit]\nDescription=Agent of a workspace\n")
	if o.Machine {
		b.WriteString("Wants=network-online.target\nAfter=network-online.target\n")
	}
	b.WriteString("\n[Service]\n")
	if o.Machine {
		fmt.Fprintf(&b, "User=%s\nWorkingDirectory=~\n", o.Account)
	}
	b.WriteString("ExecStart=" + quoted(o.program(), false))
	for _, arg := range o.arguments() {
		b.WriteString(" " + quoted(arg, true))
	}
	b.WriteString("\n")
	for _, name := range proxyVariables {
		if value, ok := env(name); ok && !strings.ContainsFunc(value, isControl) {
			b.WriteString("Environment=" + quoted(name+"="+value, false) + "\n")
		}
	}
	// The keeper restarts the agent. A process of the workspace that the kernel ends for its memory does not end the
	// others.
	b.WriteString("Restart=on-abnormal\nKillMode=mixed\nOOMPolicy=continue\n\n[Install]\n")
	if o.Machine {
		b.WriteString("WantedBy=multi-user.target\n")
	} else {
		b.WriteString("WantedBy=default.target\n")
	}
	return b.String()
}

// quoted returns a word of a unit as systemd.syntax(7) and systemd.service(5) quote it. Only the arguments of commands
// expand "$".
func quoted(word string, argument bool) string {
	word = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(word)
	if argument {
		word = strings.ReplaceAll(word, "$", "$$")
	}
	return `"` + word + `"`
}
