package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompare prints rows beside those of an earlier run.
func TestCompare(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "earlier.json")
	if err := os.WriteFile(file, []byte(`[{"name":"start","value":1.25,"unit":"s"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	earlier, err := earlierValues(file)
	if err != nil {
		t.Fatal(err)
	}
	rows := []row{{Name: "start", Value: 0.5, Unit: "s", Goal: "< 1 s"}, {Name: "new", Value: 3, Unit: "ms", Min: 2, Max: 4}}
	var out strings.Builder
	if err := printRows(&out, rows, earlier); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if got := strings.Join(strings.Fields(lines[1]), " "); got != "start 0.5 s 1.25 < 1 s" {
		t.Errorf("got %q", got)
	}
	if got := strings.Join(strings.Fields(lines[2]), " "); got != "new 3 ms - 2–4" {
		t.Errorf("got %q", got)
	}
	if _, err := earlierValues(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that does not exist was compared with")
	}
}
