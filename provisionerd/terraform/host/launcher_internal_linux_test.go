package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestLauncher: the small program starts sandboxes if there is one, and our own does otherwise, also when the cache folder, which may be deleted,
// was deleted.
func TestLauncher(t *testing.T) {
	t.Parallel()
	h := &Host{opts: Options{CacheDir: t.TempDir(), Worker: []string{"/opt/coder", "worker"}}}
	own := func(when string) {
		t.Helper()
		if err := h.unpack(); err != nil || h.launcher() != "/opt/coder" {
			t.Errorf("%s %s starts sandboxes, %v", when, h.launcher(), err)
		}
	}
	own("without another program")
	h.opts.Launcher = func(string) (string, error) { return "", nil }
	own("in a build that lacks it")
	h.opts.Launcher = func(dir string) (string, error) {
		name := filepath.Join(dir, "small")
		return name, os.WriteFile(name, nil, 0o755)
	}
	if err := h.unpack(); err != nil || h.launcher() != filepath.Join(h.opts.CacheDir, "launcher", "small") {
		t.Errorf("%s starts sandboxes, %v", h.launcher(), err)
	}
	if err := os.RemoveAll(h.opts.CacheDir); err != nil {
		t.Fatal(err)
	}
	if h.launcher() != "/opt/coder" {
		t.Errorf("%s starts sandboxes when it was deleted", h.launcher())
	}
	full := errors.New("the disk is full")
	h.opts.Launcher = func(string) (string, error) { return "", full }
	if err := h.unpack(); !errors.Is(err, full) {
		t.Errorf("a program that cannot be written: %v", err)
	}
}

// TestLauncherOfOthers: a program is not taken from a folder that another account may write.
func TestLauncherOfOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give folders away")
	}
	h := &Host{opts: Options{CacheDir: t.TempDir()}}
	h.opts.Launcher = func(string) (string, error) {
		t.Error("unpacked into a folder of another account")
		return "", nil
	}
	if err := os.Mkdir(filepath.Join(h.opts.CacheDir, "launcher"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{h.opts.CacheDir, filepath.Join(h.opts.CacheDir, "launcher")} {
		if err := os.Lchown(dir, 1000, 1000); err != nil {
			t.Fatal(err)
		}
		if err := h.unpack(); err == nil {
			t.Errorf("%s of another account was taken", dir)
		}
		if err := os.Lchown(dir, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
}
