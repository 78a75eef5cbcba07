package agents_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestUploadTree checks that a file of a tree brings its folders, whether they are there or not.
func TestUploadTree(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	for name, content := range map[string]string{"src/a/b.txt": "first", "src/a/c.txt": "second", "src/d.txt": "third"} {
		w.status(http.StatusOK, http.MethodPut, "content", strings.NewReader(content), "below", w.home, "path", name)
		if got, err := os.ReadFile(filepath.Join(w.home, name)); err != nil || string(got) != content {
			t.Errorf("%s has %q, %v; want %q", name, got, err, content)
		}
	}
	for range 2 { // a folder of a tree may be there
		w.status(http.StatusOK, http.MethodPut, "folder", nil, "below", "~", "path", "src/empty/deep")
	}
	if info, err := os.Stat(filepath.Join(w.home, "src/empty/deep")); err != nil || !info.IsDir() {
		t.Errorf("the empty folder: %v, %v", info, err)
	}
	// What is there stays, as without a tree.
	msg := w.status(http.StatusConflict, http.MethodPut, "content", strings.NewReader("new"), "below", w.home, "path", "src/d.txt")
	if got, err := os.ReadFile(filepath.Join(w.home, "src/d.txt")); err != nil || string(got) != "third" || !strings.Contains(msg, `"overwrite"`) {
		t.Errorf("the file has %q, %v; the answer is %s", got, err, msg)
	}
	// A file is no folder.
	msg = w.status(http.StatusConflict, http.MethodPut, "content", strings.NewReader("x"), "below", w.home, "path", "src/d.txt/x")
	if !strings.Contains(msg, "where a folder is needed") {
		t.Errorf("below a file: %s", msg)
	}
	w.status(http.StatusConflict, http.MethodPut, "folder", nil, "below", w.home, "path", "src/d.txt")
}

// TestUploadTreeStaysBelow checks that no name of a tree leads out of the folder to which it is uploaded.
func TestUploadTreeStaysBelow(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	if err := os.Mkdir(filepath.Join(w.home, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"", ".", "..", "../out", "a/../../out", "a/..", "/out", "//out", "a//b", "a/", "./a", `..\out`, `a\b`, "a\nb", "a\x00b", "a\x7fb", "a\xff", "\u0085",
		strings.Repeat("d/", 64) + "f", strings.Repeat("n", 5000),
	} {
		for _, route := range []string{"content", "folder"} {
			w.status(http.StatusBadRequest, http.MethodPut, route, strings.NewReader("x"), "below", w.home+"/in", "path", name)
		}
	}
	w.status(http.StatusBadRequest, http.MethodPut, "content", strings.NewReader("x"), "below", "a\x00", "path", "f")
	if got := w.names(); !slices.Equal(got, []string{"in"}) {
		t.Errorf("there are %q", got)
	}
	if inside, err := os.ReadDir(filepath.Join(w.home, "in")); err != nil || len(inside) != 0 {
		t.Errorf("there are %v, %v", inside, err)
	}
}
