package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBoundedLog: a log that is full keeps its newest lines, and never grows beyond its bound, whatever it held before.
func TestBoundedLog(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "log")
	const bound = 4096
	if err := os.WriteFile(name, []byte(strings.Repeat("old\n", bound)), 0o600); err != nil { // of a version without a bound
		t.Fatal(err)
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log, err := openBoundedLog(file, bound)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if n, err := log.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("wrote %d of %d, %v", n, len(text), err)
		}
		if info, err := file.Stat(); err != nil || info.Size() > bound {
			t.Errorf("the log has %d bytes of %d, %v", info.Size(), bound, err)
		}
	}
	for range 1000 {
		write("line\n")
	}
	write("last\n")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); !strings.HasPrefix(got, cutNotice+"line\n") || !strings.HasSuffix(got, "line\nlast\n") || len(got) < bound/3 || strings.Contains(got, "\nold\n") {
		t.Errorf("the log holds %d bytes: %.100q", len(got), got)
	}
	write(strings.Repeat("x", 3*bound))
}
