// Package autostart starts a workspace's agent whenever its machine starts: as a service of systemd on Linux, of launchd
// on macOS, and as a scheduled task on Windows. It needs no administrator. A folder that only the account can read holds what the service
// runs:
//
//	coder (coder.exe)   a copy of the program that installed it
//	token               the agent's token, which is in no argument, variable or description of the service
//
// The service runs `coder agent`, whose keeper restarts the agent after crashes. The system restarts the keeper only if
// it crashes, because an agent that the server refuses has nothing to come back for.
//
// Package autostart knows neither the server nor the mesh.
package autostart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Options describes a service. Uninstall needs the account and the folder only.
type Options struct {
	Account, Home string // of the account that the agent runs as: the one of this process
	Machine       bool   // the account may install services of the machine, as root may
	Folder        string // absolute; it belongs to the service
	Program       string // absolute path of the program to copy
	URL           string // of the server
	Token         secret.Token

	run func(ctx context.Context, name string, args ...string) error // in tests; nil runs the program
}

// ErrAbsent is Uninstall's error if there is no service.
var ErrAbsent = errors.New("no agent is installed for this account")

// Install makes and starts the service, or replaces an earlier one. A note that is not empty says what the user must
// do.
func Install(ctx context.Context, opts Options) (note string, err error) {
	if opts.Token == "" || strings.ContainsFunc(opts.Token.Reveal()+opts.URL+opts.Folder, isControl) {
		return "", errors.New("the token is missing, or it, the server's URL or the folder has control characters")
	}
	if err := available(ctx, opts); err != nil {
		return "", err
	}
	if err := os.MkdirAll(opts.Folder, 0o700); err != nil {
		return "", err
	}
	if err := protect(opts.Folder); err != nil {
		return "", fmt.Errorf("protect %s: %w", opts.Folder, err)
	}
	if err := copyProgram(opts.Program, opts.program()); err != nil {
		return "", fmt.Errorf("copy program: %w", err)
	}
	if err := writeToken(opts.tokenFile(), opts.Token); err != nil {
		return "", fmt.Errorf("write token: %w", err)
	}
	return register(ctx, opts)
}

// Uninstall ends the service and removes what Install made.
func Uninstall(ctx context.Context, opts Options) error {
	if _, err := os.Lstat(opts.tokenFile()); errors.Is(err, fs.ErrNotExist) {
		return ErrAbsent
	}
	return errors.Join(unregister(ctx, opts), remove(opts.Folder))
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func (o Options) program() string   { return filepath.Join(o.Folder, programName) }
func (o Options) tokenFile() string { return filepath.Join(o.Folder, "token") }

// arguments are those of the program.
func (o Options) arguments() []string {
	return []string{"agent", "--agent-url", o.URL, "--agent-token-file", o.tokenFile()}
}

// command runs a program of the system. Its error holds what the program said.
func (o Options) command(ctx context.Context, name string, args ...string) error {
	if o.run != nil {
		return o.run(ctx, name, args...)
	}
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// writeToken replaces the file. No other account can read it at any time.
func writeToken(path string, token secret.Token) error {
	return replace(path, 0o600, func(f *os.File) error {
		_, err := f.WriteString(token.Reveal() + "\n")
		return err
	})
}

// copyProgram replaces a program, which may be running.
func copyProgram(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if have, err := os.Stat(to); err == nil {
		if own, err := source.Stat(); err == nil && os.SameFile(have, own) {
			return nil
		}
	}
	return replace(to, 0o700, func(f *os.File) error {
		_, err := io.Copy(f, source)
		return err
	})
}

// replace writes a file beside path, protects it, and renames it.
func replace(path string, mode fs.FileMode, write func(*os.File) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	err = errors.Join(protect(f.Name()), write(f), f.Close(), os.Chmod(f.Name(), mode))
	if err != nil {
		return err
	}
	setAside(path)
	return os.Rename(f.Name(), path)
}

// proxyVariables are those of the installing environment that the service keeps: how the server is reached, and whom to
// trust.
var proxyVariables = []string{
	"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
}
