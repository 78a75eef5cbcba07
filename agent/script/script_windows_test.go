package script_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/script"
	"github.com/codermesh/codermesh/v2/internal/winetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type buffer struct {
	mu    sync.Mutex // guards b
	b     bytes.Buffer
	ready chan struct{} // closed with the first output
	once  sync.Once
}

func newBuffer() *buffer { return &buffer{ready: make(chan struct{})} }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.once.Do(func() { close(b.ready) })
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newRunner(t *testing.T) (*script.Runner, script.Environment) {
	t.Helper()
	dir := winetest.TempDir(t)
	r := script.New(script.Options{StateDir: filepath.Join(dir, "a state"), LogDir: filepath.Join(dir, "log")})
	t.Cleanup(func() { r.Close() })
	user := proc.CurrentUser()
	user.Home = dir
	env := proc.NewEnv(os.Environ())
	user.SetAccount(env)
	return r, script.Environment{User: user, Directory: dir, Env: env.List()}
}

func TestRun(t *testing.T) {
	t.Parallel()
	r, env := newRunner(t)
	for name, c := range map[string]struct {
		text, output string
		code         int
	}{
		"output":  {"#!cmd\necho a\necho b>&2\n", "a\r\nb\r\n", 0},
		"status":  {"#!cmd.exe\r\nexit /b 3\r\n", "", 3},
		"labels":  {"#!cmd\ngoto end\necho not here\n:end\necho here", "here\r\n", 0},
		"folder":  {"#!/usr/bin/env cmd\ncd", env.Directory + "\r\n", 0},
		"data":    {"#!cmd\nif exist %CODER_SCRIPT_DATA_DIR% if exist \"%CODER_SCRIPT_BIN_DIR%\\..\" echo both", "", 0},
		"missing": {"#!/usr/bin/no-such-program\n", "The script could not be started: the script's first line names no-such-program, which is not on this machine's PATH\n", 127},
	} {
		if name == "data" { // the folder's name has a blank
			c.text, c.output = strings.Replace(c.text, "%CODER_SCRIPT_DATA_DIR%", `"%CODER_SCRIPT_DATA_DIR%"`, 1), "both\r\n"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := newBuffer()
			result := r.Run(t.Context(), script.Script{ID: uuid.New(), Text: c.text, Output: out}, env)
			if out.String() != c.output || result.ExitCode != c.code || result.TimedOut {
				t.Errorf("got %q, %d, %v; want %q, %d", out.String(), result.ExitCode, result.Err, c.output, c.code)
			}
		})
	}
}

// TestEnd ends a script together with what it has started, which would otherwise keep its output open.
func TestEnd(t *testing.T) {
	t.Parallel()
	r, env := newRunner(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := newBuffer()
	go func() {
		<-out.ready
		cancel()
	}()
	result := r.Run(ctx, script.Script{ID: uuid.New(), Text: "#!cmd\necho ready\n:again\ngoto again", Output: out}, env)
	if !result.TimedOut || result.ExitCode == 0 {
		t.Errorf("result %+v", result)
	}
}
