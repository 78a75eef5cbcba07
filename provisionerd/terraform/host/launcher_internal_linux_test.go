package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestLauncher: the small program starts sandboxes if there is one, and our own does otherwise, also when the cache folder, which may be deleted,
// was deleted.
func TestLauncher(t *testing.T) {
	t.Parallel()
	opts := Options{CacheDir: t.TempDir(), Worker: []string{"/opt/coder", "worker"}}
	small := filepath.Join(opts.CacheDir, "launcher", "small")
	after := func(unpack func(dir string) (string, error)) *Host {
		h := &Host{opts: opts, log: slog.New(slog.DiscardHandler)}
		h.opts.Launcher = unpack
		h.unpack()
		return h
	}
	for name, unpack := range map[string]func(string) (string, error){
		"without another program":       nil,
		"in a build that lacks it":      func(string) (string, error) { return "", nil },
		"when the disk is full":         func(string) (string, error) { return "", syscall.ENOSPC },
		"when the folder cannot be had": func(string) (string, error) { return "/nonexistent/small", nil },
	} {
		if got := after(unpack).launcher(); got != "/opt/coder" {
			t.Errorf("%s %s starts sandboxes", name, got)
		}
	}
	h := after(func(dir string) (string, error) {
		name := filepath.Join(dir, "small")
		return name, os.WriteFile(name, nil, 0o755)
	})
	if got := h.launcher(); got != small {
		t.Errorf("%s starts sandboxes", got)
	}
	if err := os.RemoveAll(opts.CacheDir); err != nil {
		t.Fatal(err)
	}
	if got := h.launcher(); got != "/opt/coder" {
		t.Errorf("%s starts sandboxes when the other one was deleted", got)
	}
}

// TestLauncherOfOthers: a program does not come from a folder of another account.
func TestLauncherOfOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give folders away")
	}
	h := &Host{opts: Options{CacheDir: t.TempDir(), Worker: []string{"/opt/coder"}}, log: slog.New(slog.DiscardHandler)}
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
		h.unpack()
		if got := h.launcher(); got != "/opt/coder" {
			t.Errorf("%s starts sandboxes", got)
		}
		if err := os.Lchown(dir, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
}
