package packed

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/fstest"
)

// build returns the files of a build whose program has the given text.
func build(t *testing.T, program string) fstest.MapFS {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(program)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{"dist/coder-sandbox-" + runtime.GOOS + "-" + runtime.GOARCH + ".gz": {Data: packed.Bytes()}}
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unpacked := func(program string) os.FileInfo {
		t.Helper()
		name, err := unpack(build(t, program), dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil || string(got) != program {
			t.Fatalf("unpacked %q, %v", got, err)
		}
		info, err := os.Stat(name)
		if err != nil || info.Mode() != mode {
			t.Fatalf("unpacked %v, %v", info, err)
		}
		return info
	}
	first := unpacked("one")
	if !os.SameFile(first, unpacked("one")) {
		t.Error("the same program was written again")
	}
	if os.SameFile(first, unpacked("two")) {
		t.Error("another program was written over the one that may run")
	}
	name := filepath.Join(dir, "coder-sandbox")
	if err := os.Chmod(name, 0o777); err != nil {
		t.Fatal(err)
	}
	unpacked("two")
	elsewhere := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(elsewhere, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.Remove(name), os.Symlink(elsewhere, name)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	unpacked("two")
	if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the program is %v, %v", info, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the folder has %v, %v", left, err)
	}
}

func TestBuildWithoutProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if name, err := unpack(fstest.MapFS{"dist/.gitkeep": {}}, dir); name != "" || err != nil {
		t.Errorf("unpacked %q, %v", name, err)
	}
	broken := build(t, "one")
	for _, file := range broken {
		file.Data = file.Data[:len(file.Data)/2]
	}
	if name, err := unpack(broken, dir); err == nil {
		t.Errorf("unpacked %q of half a file", name)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the folder has %v, %v", left, err)
	}
}
