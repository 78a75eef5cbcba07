package terraform

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// install writes what Terraform installs of a provider into a folder, and a link that leads out of it.
func install(t *testing.T, dir string, provider []byte) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"provider": provider, "LICENSE": []byte("small")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
}

// stored tidies the store of a folder, and returns how many files are left. They are old enough to be removed the next time.
func stored(t *testing.T, dir string) int {
	t.Helper()
	if err := tidyStore(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, storeDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		old := time.Now().Add(-2 * tidyEvery)
		if err := os.Chtimes(filepath.Join(dir, storeDir, entry.Name()), old, old); err != nil {
			t.Fatal(err)
		}
	}
	return len(entries)
}

// TestShare installs one provider in two template versions, and another build of it in a third.
func TestShare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := removeReadOnly(dir); err != nil {
			t.Error(err)
		}
	})
	const installed = ".terraform/providers/registry.example.com/a/b/1.0.0/linux_amd64"
	large, other := bytes.Repeat([]byte("large"), sharedFrom), bytes.Repeat([]byte("other"), sharedFrom)
	file := func(version, name string) string { return filepath.Join(dir, versionsDir, version, installed, name) }
	for version, content := range map[string][]byte{"one": large, "two": large, "three": other} {
		install(t, filepath.Dir(file(version, "x")), content)
		if err := closeTree(filepath.Join(dir, versionsDir, version)); err != nil {
			t.Fatal(err)
		}
		if err := share(dir, versionsDir+"/"+version); err != nil {
			t.Fatal(err)
		}
	}
	look := func(name string) os.FileInfo {
		t.Helper()
		info, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	if !os.SameFile(look(file("one", "provider")), look(file("two", "provider"))) {
		t.Error("the same provider is twice on the disk")
	}
	if os.SameFile(look(file("one", "LICENSE")), look(file("two", "LICENSE"))) {
		t.Error("a small file is shared")
	}
	for version, want := range map[string][]byte{"one": large, "two": large, "three": other} {
		got, err := os.ReadFile(file(version, "provider"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has another provider: %v", version, err)
		}
		if mode := look(file(version, "provider")).Mode().Perm(); mode != 0o555 {
			t.Errorf("%s: the provider's mode is %o", version, mode)
		}
		if mode := look(filepath.Dir(file(version, "provider"))).Mode().Perm(); mode != 0o555 {
			t.Errorf("%s: the folder's mode is %o", version, mode)
		}
	}
	if n := stored(t, dir); n != 2 {
		t.Errorf("%d files are stored, want 2", n)
	}
	for i, version := range []string{"one", "two", "three"} {
		if err := removeReadOnly(filepath.Join(dir, versionsDir, version)); err != nil {
			t.Fatal(err)
		}
		if n, want := stored(t, dir), []int{2, 1, 0}[i]; n != want {
			t.Errorf("after %s is gone %d files are stored, want %d", version, n, want)
		}
	}
}
