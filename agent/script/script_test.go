//go:build linux

package script_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/script"
	"github.com/codermesh/codermesh/v2/internal/disk/disktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type fixture struct {
	*script.Runner
	env script.Environment
	dir string
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{dir: t.TempDir()}
	f.Runner = script.New(script.Options{StateDir: filepath.Join(f.dir, "state"), LogDir: filepath.Join(f.dir, "log")})
	t.Cleanup(func() { f.Close() })
	user := proc.CurrentUser()
	user.Home, user.Shell = t.TempDir(), "/bin/bash"
	f.env = script.Environment{User: user, Directory: user.Home, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + user.Home}}
	return f
}

func TestRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, test := range map[string]struct {
		text   string
		output string
		code   int
	}{
		"output":   {"echo a; echo b >&2", "a\nb\n", 0},
		"status":   {"exit 3", "", 3},
		"signal":   {"kill -KILL $$", "", 137},
		"shell":    {`[[ -n $BASH_VERSION ]] && echo bash`, "bash\n", 0},
		"shebang":  {"#!/bin/sh -e\nfalse\necho not here", "", 1},
		"env":      {"#!/usr/bin/env bash\necho $0 | grep -c state/scripts", "1\n", 0},
		"folder":   {`[ "$PWD" = "$HOME" ] && echo home`, "home\n", 0},
		"data":     {`cd "$CODER_SCRIPT_DATA_DIR" && cd "$CODER_SCRIPT_BIN_DIR" && echo both`, "both\n", 0},
		"long":     {"# " + strings.Repeat("x", 300<<10) + "\necho long", "long\n", 0},
		"no input": {"cat; echo end", "end\n", 0},
		"windows":  {"#!/usr/bin/env bash\r\nif true\r\nthen\r\n  echo ok\r\nfi\r\n", "ok\n", 0},
		"no #!":    {"if true\r\nthen echo ok\r\nfi\r\ntest $(printf '\\r\\n' | wc -c) = 2\r", "ok\n", 0},
		"own \\r":  {"echo ok\nprintf 'a\r\n' | wc -c", "ok\n3\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var out buffer
			got := f.Run(t.Context(), script.Script{ID: uuid.New(), Text: test.text, Output: &out}, f.env)
			if out.String() != test.output || got.ExitCode != test.code || got.TimedOut || got.Err != nil {
				t.Errorf("got %+v, output %q; want status %d, %q", got, out.String(), test.code, test.output)
			}
		})
	}
}

// TestFullDisks: a script whose log does not fit runs on, and one that cannot be stored does not run; its output says which disk is full.
func TestFullDisks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		folder, text, output string
		code                 int
	}{
		"log":   {"log", "head -c 3000000 /dev/zero; echo; echo ran", " lacks what follows: The workspace's disk is full: 0 of 1 MB free in ", 0},
		"state": {"state", "echo ran", "The script could not be started: The workspace's disk is full: 0 of 1 MB free in ", 126},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			small := disktest.Small(t, "size=1m")
			if err := os.Symlink(small, filepath.Join(f.dir, c.folder)); err != nil {
				t.Fatal(err)
			}
			if name == "state" {
				disktest.Fill(t, filepath.Join(small, "ballast"))
			}
			var out buffer
			got := f.Run(t.Context(), script.Script{ID: uuid.New(), Text: c.text, Output: &out}, f.env)
			text := strings.ReplaceAll(out.String(), "\x00", "")
			if !strings.Contains(text, c.output) || strings.Contains(text, "ran\n") != (got.Err == nil) || (got.ExitCode == 0) != (c.code == 0) {
				t.Errorf("got %+v, output %q; want %q", got, text, c.output)
			}
		})
	}
}

func TestTimeoutEndsTheTree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var out buffer
	got := f.Run(t.Context(), script.Script{
		ID: uuid.New(), Text: "sleep 3600 & echo $!; wait", Timeout: 200 * time.Millisecond, Output: &out,
	}, f.env)
	if !got.TimedOut || got.OK() || got.ExitCode != 143 {
		t.Errorf("got %+v, want it timed out by SIGTERM", got)
	}
	// Run has seen the end of the pipe, so no writer is left and the child is gone too.
	if !strings.Contains(out.String(), "was ended after") {
		t.Errorf("output %q does not say why the script ended", out.String())
	}
}

func TestBackgroundProgramSurvives(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	fifo := filepath.Join(f.dir, "go")
	var out buffer
	got := f.Run(t.Context(), script.Script{
		ID: uuid.New(), Text: "mkfifo " + fifo + "; (read x < " + fifo + "; echo later; echo done > " + fifo + ") & echo now", Output: &out,
	}, f.env)
	if !got.OK() || out.String() != "now\n" {
		t.Fatalf("got %+v, output %q; want the script ended and its job not", got, out.String())
	}
	if err := os.WriteFile(fifo, []byte("x\n"), 0); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(fifo); err != nil || string(data) != "done\n" {
		t.Errorf("job: %q, %v; want it alive after the script's end", data, err)
	}
}

func TestLogFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := uuid.New()
	for path, want := range map[string]string{
		"":             filepath.Join(f.dir, "log", "coder-script-"+id.String()+".log"),
		"a/b.log":      filepath.Join(f.dir, "log", "a/b.log"),
		"~/c.log":      filepath.Join(f.env.User.Home, "c.log"),
		"$HOME/d.log":  filepath.Join(f.env.User.Home, "d.log"),
		f.dir + "/e.l": filepath.Join(f.dir, "e.l"),
	} {
		if got := f.Run(t.Context(), script.Script{ID: id, Text: "echo kept", LogPath: path}, f.env); !got.OK() {
			t.Errorf("log path %q: %+v", path, got)
		}
		if data, err := os.ReadFile(want); err != nil || string(data) != "kept\n" {
			t.Errorf("log path %q: %q, %v", path, data, err)
		}
	}
}

func TestMissingInterpreter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var out buffer
	got := f.Run(t.Context(), script.Script{ID: uuid.New(), Text: "#!/no/such/thing\n", Output: &out}, f.env)
	if got.OK() || got.Err == nil || got.ExitCode != 127 || !strings.Contains(out.String(), "could not be started") {
		t.Errorf("got %+v, output %q; want a reason", got, out.String())
	}
}

func TestEndOfContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := f.Run(ctx, script.Script{ID: uuid.New(), Text: "exec sleep 3600"}, f.env); !got.TimedOut {
		t.Errorf("got %+v, want it ended", got)
	}
}
