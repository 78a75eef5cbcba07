package agent

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSocketFolderIsRemoved: the temporary folder of a socket goes with its agent; a folder that is another's or holds something stays.
func TestSocketFolderIsRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	mine, other := filepath.Join(tmp, "coder-agent-0123456789abcdef"), filepath.Join(tmp, "state")
	for _, dir := range []string{mine, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := removeSocketFolder(filepath.Join(dir, "agent.sock")); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(mine); err == nil {
		t.Error("the folder of a socket that has ended is there")
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("the state folder was removed")
	}
	if err := removeSocketFolder(filepath.Join(mine, "agent.sock")); err != nil {
		t.Errorf("a folder that is gone already: %v", err)
	}
}
