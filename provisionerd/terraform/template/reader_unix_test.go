//go:build unix

package template

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// TestReadFile reads what other programs may have left in a template's folder.
func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	for name, text := range map[string]string{outside: "secret", filepath.Join(dir, "file"): "text"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"inside": "file", "outside": outside, "up": "..", "nowhere": "nothing", "zero": "/dev/zero"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, want := range map[string]string{"file": "text", "inside": "text", "outside": "", "up": "", "nowhere": "", "zero": "", "pipe": "", ".": ""} {
		got, err := readFile(root, name, 4)
		if string(got) != want || (err == nil) != (want != "") || err != nil && fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if got, err := readFile(root, "file", 3); err == nil {
		t.Errorf("a file above the limit: got %q", got)
	}
}
