//go:build unix

package dbtest

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
)

// TestPreparedOnce checks that processes that start at the same time prepare one folder, that each gets a copy of its own, and that folders
// of earlier migrations go once they are old.
func TestPreparedOnce(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache) // where systems without the other look
	in, err := embedded.Find(t.Context(), t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	shelf := filepath.Join(cache, "codermesh-dbtest")
	for name, age := range map[string]time.Duration{"old": forgotten + time.Hour, "recent": forgotten - time.Hour} {
		if err := os.MkdirAll(filepath.Join(shelf, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(shelf, name), time.Now(), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	parent, err := os.MkdirTemp(memoryFolder(), "pgtest-") // short enough for the socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	if err := os.Chmod(parent, 0o755); err != nil { // PostgreSQL has an account of its own
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, name := range []string{"1", "2", "3"} {
		all.Go(func() {
			data := filepath.Join(parent, name)
			if err := provide(in, data, embedded.Volatile); err != nil {
				t.Error(err)
			} else if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	key, err := fingerprint(in)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(shelf)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	slices.Sort(got)
	want := []string{key, "lock", "recent"}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
}
