//go:build unix

package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSweep makes run folders of dead, living and other accounts' executors, and links that look like them.
func TestSweep(t *testing.T) {
	t.Parallel()
	parent, outside := t.TempDir(), t.TempDir()
	write := func(name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-leftFor - time.Hour)
	precious := filepath.Join(outside, "precious")
	write(precious)
	write(filepath.Join(outside, "lock"))
	kept := map[string]bool{}
	folder := func(name string, keep bool, files ...string) string {
		t.Helper()
		dir := filepath.Join(parent, name)
		for _, file := range files {
			write(filepath.Join(dir, file))
			if err := os.Chtimes(filepath.Join(dir, file), long, long); err != nil {
				t.Fatal(err)
			}
		}
		kept[name] = keep
		return dir
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	folder("cm-0000000001", false, "lock", "terraformrc", "x0", "u0")
	withLink := folder("cm-0000000002", false, "lock")
	link(outside, filepath.Join(withLink, "s0"))
	living := folder("cm-0000000003", true, "lock")
	lock, err := lockFile(filepath.Join(living, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	job := folder("cm-0000000004", true, "lock", "j0")
	write(filepath.Join(job, "j0")) // now
	left := folder("cm-0000000005", true, "lock")
	write(filepath.Join(left, "left", "job-1", "w", "terraform.tfstate"))
	folder("cm-0000000006", false, "lock", "j0") // too old to be kept
	folder("cm-0000000007", true, "terraformrc") // nothing shows whether its executor lives
	folder("cm-00000000zz", true, "lock")
	folder("codermesh", true, "lock")
	link(outside, filepath.Join(parent, "cm-0000000008"))
	kept["cm-0000000008"] = true
	lockLink := folder("cm-0000000009", true, "x0")
	link(precious, filepath.Join(lockLink, "lock"))
	if os.Geteuid() == 0 {
		if err := os.Lchown(folder("cm-000000000a", true, "lock"), 12345, 12345); err != nil {
			t.Fatal(err)
		}
	}
	if err := sweep(parent, time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, keep := range kept {
		if _, err := os.Lstat(filepath.Join(parent, name)); (err == nil) != keep {
			t.Errorf("%s: %v, want kept %t", name, err, keep)
		}
	}
	for _, name := range []string{precious, filepath.Join(outside, "lock"), filepath.Join(left, "left", "job-1", "w", "terraform.tfstate")} {
		if _, err := os.Lstat(name); err != nil {
			t.Error(err)
		}
	}
}
