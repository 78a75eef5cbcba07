//go:build linux

package autostart

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

// account is a user's account of a test, whose systemd notes what it is asked.
type account struct {
	Options
	asked []string
	fails string // the program that fails
}

func newAccount(t *testing.T) *account {
	t.Helper()
	home := t.TempDir()
	program := filepath.Join(home, "download", "coder")
	if err := os.Mkdir(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	a := &account{}
	a.Options = Options{
		Account: "ann", Home: home, Folder: filepath.Join(home, "state of 100% $HOME"), Program: program,
		URL: "https://coder.example.com", Token: "s3cret",
		run: func(_ context.Context, name string, args ...string) error {
			a.asked = append(a.asked, strings.Join(append([]string{name}, args...), " "))
			if name == a.fails {
				return errors.New("not here")
			}
			return nil
		},
	}
	return a
}

// TestInstall checks what is left on the machine, twice, and that nothing is left after Uninstall.
func TestInstall(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	for _, token := range []secret.Token{"first", "s3cret"} {
		a.asked, a.Token = nil, token
		if note, err := Install(t.Context(), a.Options); err != nil || note != "" {
			t.Fatalf("%q, %v", note, err)
		}
		want := []string{
			"systemctl --user show-environment",
			"systemctl --user daemon-reload", "systemctl --user enable codermesh-agent.service",
			"systemctl --user restart --no-block codermesh-agent.service", "loginctl enable-linger ann",
		}
		if !slices.Equal(a.asked, want) {
			t.Errorf("systemd was asked %q, want %q", a.asked, want)
		}
	}
	modes := map[string]fs.FileMode{}
	err := filepath.WalkDir(a.Home, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && path != a.Folder {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text, _ := os.ReadFile(path) // a folder has none
		if strings.Contains(string(text), "s3cret") != (path == a.tokenFile()) || strings.Contains(string(text), "first") {
			t.Errorf("%s has %q", path, text)
		}
		name, err := filepath.Rel(a.Home, path)
		modes[name] = info.Mode()
		return err
	})
	folder := filepath.Base(a.Folder)
	want := map[string]fs.FileMode{
		folder: fs.ModeDir | 0o700, folder + "/coder": 0o700, folder + "/token": 0o600, "download/coder": 0o755,
		".config/systemd/user/codermesh-agent.service": 0o644,
	}
	if err != nil || len(modes) != len(want) {
		t.Errorf("files: %v, %v; want %v", modes, err, want)
	}
	for name, mode := range want {
		if modes[name] != mode {
			t.Errorf("%s has mode %s, want %s", name, modes[name], mode)
		}
	}

	a.asked = nil
	if err := Uninstall(t.Context(), a.Options); err != nil {
		t.Fatal(err)
	}
	wantAsked := []string{
		"systemctl --user disable codermesh-agent.service", "systemctl --user daemon-reload",
		"systemctl --user stop --no-block codermesh-agent.service",
	}
	if !slices.Equal(a.asked, wantAsked) {
		t.Errorf("systemd was asked %q, want %q", a.asked, wantAsked)
	}
	for _, path := range []string{a.Folder, a.unitFile()} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := Uninstall(t.Context(), a.Options); !errors.Is(err, ErrAbsent) {
		t.Errorf("the second time: %v", err)
	}
}

func TestInstallFails(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	a.fails = "loginctl"
	note, err := Install(t.Context(), a.Options)
	if err != nil || !strings.Contains(note, "sudo loginctl enable-linger ann") {
		t.Errorf("without lingering: %q, %v", note, err)
	}
	a = newAccount(t)
	a.fails = "systemctl"
	if _, err := Install(t.Context(), a.Options); err == nil || !strings.Contains(err.Error(), "systemd does not answer") {
		t.Errorf("without systemd: %v", err)
	}
	if _, err := os.Lstat(a.Folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without systemd: the folder is left, %v", err)
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Token = "" },
		func(o *Options) { o.Token = "x\ny" },
		func(o *Options) { o.URL = "https://coder.example.com\nExecStartPre=/bin/evil" },
		func(o *Options) { o.Folder += "\n" },
	} {
		hostile := newAccount(t)
		change(&hostile.Options)
		if _, err := Install(t.Context(), hostile.Options); err == nil || len(hostile.asked) != 0 {
			t.Errorf("%+v is installed: %v, %q", hostile.Options, err, hostile.asked)
		}
	}
}

// TestUnit checks that systemd understands the unit and its quotes, for an account and for the machine.
func TestUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is missing")
	}
	env := map[string]string{
		"HTTPS_PROXY": `http://user:p%20"$x\@proxy:8080`, "NO_PROXY": "a\nExecStartPre=/bin/evil", "PATH": "/other",
	}
	lookup := func(name string) (string, bool) { value, ok := env[name]; return value, ok }
	a := newAccount(t)
	if err := copyProgramInto(a.Options); err != nil {
		t.Fatal(err)
	}
	for _, machine := range []bool{false, true} {
		a.Machine, a.Account = machine, "root"
		text := unit(a.Options, lookup)
		if strings.Contains(text, "evil") || strings.Contains(text, "PATH") || strings.Contains(text, "s3cret") ||
			!strings.Contains(text, `Environment="HTTPS_PROXY=http://user:p%%20\"$x\\@proxy:8080"`) ||
			strings.Contains(text, "multi-user.target") != machine || strings.Contains(text, "User=root") != machine {
			t.Errorf("unit:\n%s", text)
		}
		file := filepath.Join(t.TempDir(), unitName)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"verify", "--man=no", file}
		if !machine {
			args = append([]string{"--user"}, args...)
		}
		verify := exec.CommandContext(t.Context(), analyze, args...)
		verify.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
		if out, err := verify.CombinedOutput(); err != nil || strings.Contains(string(out), file) {
			t.Errorf("systemd-analyze: %v\n%s\n%s", err, out, text)
		}
	}
}

func copyProgramInto(o Options) error {
	if err := os.Mkdir(o.Folder, 0o700); err != nil {
		return err
	}
	return copyProgram(o.Program, o.program())
}
