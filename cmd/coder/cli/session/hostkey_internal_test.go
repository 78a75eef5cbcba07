package session

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// TestHostKeyIsMadeOnce: connections that begin at once on a new machine agree on one key, which only its owner can read, and which stays.
func TestHostKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := config.Dir(filepath.Join(t.TempDir(), "new"))
	var wg sync.WaitGroup
	seen := make([][]byte, 16)
	for i := range seen {
		wg.Go(func() {
			key, err := storedHostKey(dir)
			if err != nil {
				t.Error(err)
				return
			}
			seen[i] = key.PublicKey().Marshal()
		})
	}
	wg.Wait()
	for i := range seen {
		if !bytes.Equal(seen[i], seen[0]) {
			t.Fatal("two processes have two keys")
		}
	}
	path := filepath.Join(string(dir), fileHostKey)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v; want mode 0600", info, err)
	}
	if key, err := storedHostKey(dir); err != nil || !bytes.Equal(key.PublicKey().Marshal(), seen[0]) {
		t.Errorf("later: got %v, %v; want the same key", key, err)
	}
	files, err := os.ReadDir(string(dir))
	if err != nil || len(files) != 2 { // the key and its lock
		t.Errorf("the folder holds %v, %v", files, err)
	}
}

// TestHostKeyThatIsNone: a key that cannot be read is not replaced, and the error names the file.
func TestHostKeyThatIsNone(t *testing.T) {
	t.Parallel()
	dir := config.Dir(t.TempDir())
	path := filepath.Join(string(dir), fileHostKey)
	if err := os.WriteFile(path, []byte("not a key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := storedHostKey(dir); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names the file", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "not a key\n" {
		t.Errorf("the file is now %q, %v", text, err)
	}
}

// TestHostKeyWithoutAFolder: if nothing can be stored there is a separate error, and the process creates a key for itself.
func TestHostKeyWithoutAFolder(t *testing.T) {
	t.Parallel()
	if _, err := storedHostKey(config.Dir("/proc/nowhere")); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("got %v, want that it cannot be stored", err)
	}
}
