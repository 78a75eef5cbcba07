package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// under returns the names in a folder that match patterns.
func under(t *testing.T, dir string, patterns ...string) (left []string) {
	t.Helper()
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			left = append(left, strings.TrimPrefix(name, dir+"/"))
		}
	}
	return left
}

// TestWriteEtc checks that a sandbox's /etc has copies of what is shown now, mount points for folders, its own account, and nothing that is no
// longer shown, and that every account may read it.
func TestWriteEtc(t *testing.T) {
	t.Parallel()
	h := &Host{opts: Options{Worker: []string{"/nonexistent"}}}
	shown := visible{
		paths: []string{"/usr", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/ssl/certs", "/etc/gone"},
		links: []link{{"/etc/mtab", "../proc/self/mounts"}, {"/bin", "usr/bin"}},
	}
	look := func() visible { return shown }
	h.looked.Store(&look)
	dir := filepath.Join(t.TempDir(), "etc")
	write := func() *etcFolder {
		t.Helper()
		f, err := h.writeEtc(dir, account{"ann", "/home/a:nn", "/bin/sh", 70_000})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	content := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if f := write(); f.dir != dir || !slices.Equal(f.mounts, []string{"/etc/ssl/certs"}) {
			t.Errorf("%+v, want a mount for the folder only", f)
		}
		if got := content("hosts"); got != string(hosts) {
			t.Errorf("hosts holds %q", got)
		}
		if got := content("passwd"); !strings.HasPrefix(got, "ann:x:70000:70000::/home/ann:/bin/sh\n") || !strings.Contains(got, "\nroot:") {
			t.Errorf("passwd holds %q", got)
		}
		if got := content("group"); !strings.HasPrefix(got, "ann:x:70000:\n") {
			t.Errorf("group holds %q", got)
		}
		if to, err := os.Readlink(filepath.Join(dir, "mtab")); err != nil || to != "../proc/self/mounts" {
			t.Errorf("mtab leads to %q, %v", to, err)
		}
		if info, err := os.Stat(filepath.Join(dir, "ssl/certs")); err != nil || !info.IsDir() {
			t.Errorf("the mount point: %v, %v", info, err)
		}
		for name, want := range map[string]os.FileMode{"": 0o755, "ssl": 0o755, "hosts": 0o644, "passwd": 0o644} {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v; want the mode %o", filepath.Join(dir, name), info, err, want)
			}
			if err := os.Chmod(filepath.Join(dir, name), want&^0o077); err != nil { // as a umask would
				t.Fatal(err)
			}
		}
		// A job cannot change its /etc; a daemon that was killed may leave half a file.
		if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	// What is hidden, or a folder instead of a file, since then.
	shown = visible{paths: []string{"/etc/ssl/openssl.cnf"}}
	if err := os.WriteFile(filepath.Join(dir, "stray"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if f := write(); len(f.mounts) != 0 {
		t.Errorf("mounts %v", f.mounts)
	}
	if left, want := under(t, dir, "*", "ssl/*"), []string{"group", "passwd", "ssl", "ssl/openssl.cnf"}; !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}
