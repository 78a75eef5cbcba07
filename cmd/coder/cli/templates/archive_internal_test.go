package templates

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

func TestPackUnpack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.tf": "x", "sub/run.sh": "#!/bin/sh", ".git/config": "no", ".terraform/big": "no", "terraform.tfstate": "no", "a.tfstate.backup": "no",
		".terraform.lock.hcl": "lock", "sub/.terraform/x": "no",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(dir, "sub/run.sh"), 0o755), os.Symlink("main.tf", filepath.Join(dir, "link.tf"))); err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := pack(&first, dir); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(time.Hour)
	if err := errors.Join(os.Chtimes(filepath.Join(dir, "main.tf"), now, now), pack(&second, dir)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same files made different bytes")
	}
	to := t.TempDir()
	if err := unpack(bytes.NewReader(first.Bytes()), to); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err := filepath.WalkDir(to, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(to, path)
			data, _ := os.ReadFile(path)
			got[filepath.ToSlash(name)] = string(data)
		}
		return err
	})
	want := map[string]string{"main.tf": "x", "link.tf": "x", "sub/run.sh": "#!/bin/sh", ".terraform.lock.hcl": "lock"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if info, err := os.Stat(filepath.Join(to, "sub/run.sh")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("run.sh is not executable: %v", err)
	}

	if err := pack(io.Discard, t.TempDir()); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a folder without Terraform: got %v", err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "evil")); err != nil {
		t.Fatal(err)
	}
	if err := pack(io.Discard, dir); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a link out of the folder: got %v", err)
	} else if hint, _ := exit.Hint(err); !strings.Contains(err.Error(), "to /etc/passwd") || !strings.Contains(hint, "tar -C "+shell.Word(dir)+" -ch ") || !strings.Contains(hint, "coder templates push --directory -") {
		t.Errorf("a link out of the folder: got %v, try %q", err, hint)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "evil")), os.Symlink("nothing", filepath.Join(dir, "gone"))); err != nil {
		t.Fatal(err)
	}
	if err := pack(io.Discard, dir); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "the link gone leads to nothing") {
		t.Errorf("a link to nothing: got %v", err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "gone")), os.Symlink("loop", filepath.Join(dir, "loop"))); err != nil {
		t.Fatal(err)
	}
	err = pack(io.Discard, dir)
	if hint, hinted := exit.Hint(err); fault.CodeOf(err) != fault.Invalid || hinted {
		t.Errorf("a link whose target is not known to be missing: got %v, try %q", err, hint)
	}
}

func TestUnpackStaysInside(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../x", "/etc/x", "a/../../x", ".git/config", "sub/.GIT/hooks/pre-commit", ".terraformrc", ".ssh/config"} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 1}), func() error { _, err := w.Write([]byte("x")); return err }(), w.Close()); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "in")
		if err := unpack(bytes.NewReader(archive.Bytes()), dir); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: got %v, want an invalid fault", name, err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: something was unpacked: %v", name, err)
		}
	}
}
