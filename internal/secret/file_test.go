package secret_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// TestReadFile checks which modes a file with a key may have, and that an administrator's file, as a container mounts it, may have any.
func TestReadFile(t *testing.T) {
	t.Parallel()
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o440: true, 0o660: true, 0o644: false, 0o604: false, 0o602: false, 0o601: false} {
		name := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(name, []byte("key"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		text, err := secret.ReadFile(name)
		if ok && (err != nil || string(text) != "key") {
			t.Errorf("mode %o: got %q, %v", mode, text, err)
		}
		if !ok && (fault.CodeOf(err) != fault.Invalid || text != nil) {
			t.Errorf("mode %o: got %q, %v; want it refused", mode, text, err)
		}
		if os.Geteuid() != 0 {
			continue
		}
		if err := os.Chown(name, 1, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := secret.ReadFile(name); err != nil {
			t.Errorf("mode %o, of another account: %v", mode, err)
		}
	}
	if _, err := secret.ReadFile(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}
