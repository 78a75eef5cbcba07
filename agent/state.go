package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/scratch"
)

// state is the agent's state folder. If it is not writable the agent still works, but runs its start scripts again
// after a restart.
type state struct {
	dir      string
	writable bool
	temp     *scratch.Folder // dir if it is temporary, else nil
	log      *slog.Logger
}

// openState makes dir. If that fails, or another account of this machine could put scripts into dir or read them there,
// the state is in a temporary folder instead.
func openState(dir string, log *slog.Logger) *state {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = proc.Guard(dir)
	}
	if err == nil {
		return &state{dir: dir, writable: true, log: log}
	}
	log.Warn("cannot use state folder, start scripts will run again after a restart", "path", dir, "err", err)
	temp, err := scratch.Make("coder-agent-")
	if err != nil {
		log.Warn("cannot make temporary state folder", "err", err)
		return &state{dir: dir, log: log}
	}
	return &state{dir: temp.Path(), temp: temp, log: log}
}

// close removes the folder if it is temporary.
func (s *state) close() error {
	if s.temp == nil {
		return nil
	}
	return s.temp.Close()
}

// ran records the start scripts of a build.
type ran struct {
	Incarnation uint64                 `json:"incarnation"`
	State       agentpb.LifecycleState `json:"state"` // starting while they run
}

func (s *state) ranFile() string { return filepath.Join(s.dir, "started.json") }

// started returns the last recorded start. Without a readable record it returns the zero value, and the scripts run,
// perhaps again.
func (s *state) started() ran {
	var r ran
	data, err := os.ReadFile(s.ranFile())
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("cannot read which scripts have run", "err", err)
		return ran{}
	}
	return r
}

func (s *state) setStarted(r ran) {
	if !s.writable {
		return
	}
	if err := writeJSON(s.ranFile(), r); err != nil {
		s.log.Warn("cannot record which scripts have run", "err", err)
	}
}

// writeJSON replaces a file atomically.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
