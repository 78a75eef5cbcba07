package script_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/script"
)

// TestStrangersLogFiles checks that a script's output goes nowhere that another account of the machine has prepared in a folder such as
// /tmp: not through its link, not into its file or folder, and that its pipe does not stop the script.
func TestStrangersLogFiles(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("files of another account require root")
	}
	const stranger = 65533
	for name, test := range map[string]struct {
		prepare func(tmp, own string) error
		path    string
	}{
		"link": {func(tmp, own string) error { return os.Symlink(own, tmp+"/x.log") }, "x.log"},
		"file": {func(tmp, _ string) error {
			return errors.Join(os.WriteFile(tmp+"/x.log", nil, 0o666), os.Chmod(tmp+"/x.log", 0o666))
		}, "x.log"},
		"pipe": {func(tmp, _ string) error { return syscall.Mkfifo(tmp+"/x.log", 0o666) }, "x.log"},
		"folder": {func(tmp, own string) error {
			return errors.Join(os.Mkdir(tmp+"/logs", 0o777), os.Symlink(own, tmp+"/logs/x.log"))
		}, "logs/x.log"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			tmp, own := filepath.Join(f.dir, "tmp"), filepath.Join(f.dir, "own")
			if err := errors.Join(os.Mkdir(tmp, 0o700), os.Chmod(tmp, fs.ModeSticky|0o777), os.WriteFile(own, []byte("mine\n"), 0o600), test.prepare(tmp, own)); err != nil {
				t.Fatal(err)
			}
			if err := filepath.WalkDir(tmp, func(path string, _ fs.DirEntry, err error) error {
				if err != nil || path == tmp {
					return err
				}
				return os.Lchown(path, stranger, stranger)
			}); err != nil {
				t.Fatal(err)
			}
			var out buffer
			s := script.Script{ID: uuid.New(), Text: "echo secret", LogPath: filepath.Join(tmp, test.path), Output: &out}
			if got := f.Run(t.Context(), s, f.env); !got.OK() {
				t.Errorf("the script did not run: %+v", got)
			}
			if !strings.Contains(out.String(), "belongs to another account") || !strings.HasSuffix(out.String(), "secret\n") {
				t.Errorf("the output was %q, want the reason and the script's", out.String())
			}
			if text, err := os.ReadFile(own); err != nil || string(text) != "mine\n" {
				t.Errorf("the account's own file holds %q, %v", text, err)
			}
			if info, err := os.Stat(filepath.Join(tmp, test.path)); err != nil || info.Mode().IsRegular() && name == "file" && info.Size() != 0 {
				t.Errorf("the stranger's file: %v, %v", info, err)
			}
		})
	}
}

// TestOwnLogFiles checks that links and pipes of the account's own are log files, also in a folder such as /tmp.
func TestOwnLogFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tmp, to := filepath.Join(f.dir, "tmp"), filepath.Join(f.dir, "to")
	if err := errors.Join(os.Mkdir(tmp, 0o700), os.Chmod(tmp, fs.ModeSticky|0o777), os.Symlink(to, tmp+"/x.log"), os.WriteFile(to, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{tmp + "/x.log", tmp + "/new.log", tmp + "/folder/new.log"} {
		if got := f.Run(t.Context(), script.Script{ID: uuid.New(), Text: "echo text", LogPath: path}, f.env); !got.OK() {
			t.Errorf("%s: %+v", path, got)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "text\n" {
			t.Errorf("%s holds %q, %v", path, text, err)
		}
	}
}
