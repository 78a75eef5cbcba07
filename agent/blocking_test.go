//go:build linux

package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

// TestTerminalsWaitForBlockingScripts checks that a new terminal waits for the scripts that block logins, and for no others.
func TestTerminalsWaitForBlockingScripts(t *testing.T) {
	for name, tt := range map[string]struct {
		all, one bool // what blocks: all start scripts, or the one that says so
		early    bool // the viewer does not wait
		waits    bool
	}{
		"the script blocks":    {one: true, waits: true},
		"all scripts block":    {all: true, waits: true},
		"no script blocks":     {},
		"the viewer may enter": {one: true, early: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SHELL", "/bin/sh")
			fifo := filepath.Join(t.TempDir(), "fifo")
			blocking := newScript("mkfifo "+fifo+"; echo ready >&2; cat "+fifo+"; touch "+fifo+".done", func(s *agentpb.Script) { s.StartBlocksLogin = tt.one })
			endless := newScript("sleep 100000", nil)
			scripts := []*agentpb.Script{blocking}
			if !tt.all {
				scripts = append(scripts, endless)
			}
			w := newWorld(t, scripts...)
			w.manifest.StartBlocksLogin = tt.all
			w.run(t)
			w.until(t, "the script", func() bool { return len(w.lines[string(blocking.GetLogSourceId())]) > 0 })
			conn, see := w.terminal(t, ptywire.Request{ID: uuid.New(), Early: tt.early})
			if tt.waits {
				see("Waiting for the start scripts")
			}
			if err := (ptywire.Message{Data: "test -e " + fifo + ".done && echo af''ter || echo be''fore\n"}).Forward(conn); err != nil {
				t.Fatal(err)
			}
			if tt.waits {
				_, leaves := w.terminal(t, ptywire.Request{ID: uuid.New()})
				leaves("Waiting")
				if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
					t.Fatal(err)
				}
				see("after")
				return
			}
			see("before")
		})
	}
}

// TestWaitingTerminalsEndWithTheAgent checks that a viewer who waits for a script does not keep the agent.
func TestWaitingTerminalsEndWithTheAgent(t *testing.T) {
	t.Parallel()
	endless := newScript("echo up; sleep 100000", func(s *agentpb.Script) { s.StartBlocksLogin = true })
	w := newWorld(t, endless)
	stop := w.run(t)
	gone, waits := w.terminal(t, ptywire.Request{ID: uuid.New()})
	waits("Waiting")
	gone.Close()
	_, stays := w.terminal(t, ptywire.Request{ID: uuid.New()})
	stays("Waiting")
	stop()
}
