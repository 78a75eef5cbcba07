package templates

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnified checks that patch makes the new text from the old one and the diff, and that the diff has few lines.
func TestUnified(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a\nb\nc\nd\n", 10)
	for name, c := range map[string]struct {
		before, after string
		changed       int
	}{
		"same":               {"a\n", "a\n", 0},
		"from nothing":       {"", "a\n", 1},
		"to nothing":         {"a\n", "", 1},
		"a line":             {long + "x\n" + long, long + "y\n" + long, 2},
		"two hunks":          {"x\n" + long + "x\n" + long, "y\n" + long + "y\n" + long, 4},
		"close changes":      {"1\n2\n3\n4\n5\n6\n7\n8\n", "1\nx\n3\n4\n5\n6\ny\n8\n", 4},
		"inserted":           {long, "x\n" + long + "y\n", 2},
		"no newline at end":  {"a\nb", "a\nc", 2},
		"newline at the end": {"a\nb", "a\nb\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			diff := unified("f", c.before, c.after)
			changed := 0
			for l := range strings.Lines(diff) {
				if l[0] == '-' && !strings.HasPrefix(l, "---") || l[0] == '+' && !strings.HasPrefix(l, "+++") {
					changed++
				}
			}
			if changed != c.changed {
				t.Errorf("%d changed lines, want %d:\n%s", changed, c.changed, diff)
			}
			if diff == "" {
				return
			}
			file := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(file, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "git", "apply", "--unidiff-zero", "-p0", "-")
			cmd.Dir, cmd.Stdin = filepath.Dir(file), strings.NewReader(diff)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s\n%s", err, out, diff)
			}
			got, err := os.ReadFile(file)
			if err != nil || string(got) != c.after {
				t.Errorf("applied: %q, %v, want %q\n%s", got, err, c.after, diff)
			}
		})
	}
}
