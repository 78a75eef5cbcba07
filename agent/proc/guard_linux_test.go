package proc_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/codermesh/codermesh/v2/agent/proc"
)

// stranger is another account of the machine. Tests that need one run as root.
const stranger = 65533

// shared makes a folder like /tmp.
func shared(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tmp")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, fs.ModeSticky|0o777)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestGuard checks which paths another account can have made or can replace.
func TestGuard(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make   func(dir string) error // makes what Guard looks at
		path   string                 // below dir
		others bool                   // make gives files to another account, which only root can
		safe   bool
	}{
		"missing":                  {path: "a/b", safe: true},
		"own folder":               {make: func(dir string) error { return os.Mkdir(dir+"/a", 0o700) }, path: "a/b", safe: true},
		"own file":                 {make: func(dir string) error { return os.WriteFile(dir+"/a", nil, 0o600) }, path: "a", safe: true},
		"own link":                 {make: func(dir string) error { return os.Symlink("/etc/passwd", dir+"/a") }, path: "a", safe: true},
		"own dangling link":        {make: func(dir string) error { return os.Symlink("b", dir+"/a") }, path: "a", safe: true},
		"own folder open to all":   {make: func(dir string) error { return errors.Join(os.Mkdir(dir+"/a", 0o700), os.Chmod(dir+"/a", 0o777)) }, path: "a/b"},
		"other's folder":           {make: func(dir string) error { return errors.Join(os.Mkdir(dir+"/a", 0o777), chown(dir+"/a")) }, path: "a/b", others: true},
		"other's file":             {make: func(dir string) error { return errors.Join(os.WriteFile(dir+"/a", nil, 0o666), chown(dir+"/a")) }, path: "a", others: true},
		"other's link":             {make: func(dir string) error { return errors.Join(os.Symlink("b", dir+"/a"), chown(dir+"/a")) }, path: "a", others: true},
		"other's link to a folder": {make: func(dir string) error { return errors.Join(os.Symlink("/etc", dir+"/a"), chown(dir+"/a")) }, path: "a/passwd", others: true},
		"own link to other's file": {make: func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/b", nil, 0o666), chown(dir+"/b"), os.Symlink("b", dir+"/a"))
		}, path: "a", others: true},
		"other's file in own": {make: func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/a", 0o700), os.WriteFile(dir+"/a/b", nil, 0o600), chown(dir+"/a/b"))
		}, path: "a/b", others: true, safe: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.others && os.Geteuid() != 0 {
				t.Skip("files of another account require root")
			}
			dir := shared(t)
			if test.make != nil {
				if err := test.make(dir); err != nil {
					t.Fatal(err)
				}
			}
			if err := proc.Guard(filepath.Join(dir, test.path)); (err == nil) != test.safe {
				t.Errorf("Guard: %v, want safe %v", err, test.safe)
			}
		})
	}
}

func chown(path string) error { return os.Lchown(path, stranger, stranger) }
