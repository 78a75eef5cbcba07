package agent

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStrangersState checks that another account of the machine, which has made the folder that the agent would use in /tmp, can neither
// replace its scripts nor read what it keeps.
func TestStrangersState(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("files of another account require root")
	}
	tmp := filepath.Join(t.TempDir(), "tmp")
	dir := filepath.Join(tmp, "codermesh-agent-0")
	if err := errors.Join(os.Mkdir(tmp, 0o700), os.Chmod(tmp, fs.ModeSticky|0o777), os.Mkdir(dir, 0o777), os.Lchown(dir, 65533, 65533)); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s := openState(filepath.Join(dir, "workspace-main"), slog.New(slog.NewTextHandler(&log, nil)))
	if strings.HasPrefix(s.dir, dir) || s.writable {
		t.Errorf("the state is in %s", s.dir)
	}
	info, err := os.Stat(s.dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder instead: %v, %v", info, err)
	}
	if !strings.Contains(log.String(), "belongs to another account") {
		t.Errorf("the log does not say why: %s", log.String())
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary folder is left: %v", err)
	}
}
