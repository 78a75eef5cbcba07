package agents_test

import (
	"archive/zip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// unzip returns the content of an archive's files by name, "/" for folders.
func unzip(t *testing.T, data string) map[string]string {
	t.Helper()
	r, err := zip.NewReader(strings.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range r.File {
		if f.FileInfo().IsDir() {
			out[f.Name] = "/"
			continue
		}
		content, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		out[f.Name] = string(text)
	}
	return out
}

func TestDownloadTree(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	large := strings.Repeat("0123456789abcdef", 20<<10) // many packets
	top := filepath.Join(w.home, "app")
	if err := os.MkdirAll(filepath.Join(top, "src", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.write("secret", "beside it", 0o644)
	w.write("app/large.bin", large, 0o644)
	w.write("app/run.sh", "#!/bin/sh\n", 0o755)
	w.write("app/src/nothing", "", 0o644)
	w.write(`app/..\evil`, "x", 0o644)
	if err := os.Symlink("../secret", filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	resp, data := w.request("ann", http.MethodGet, "archive", nil, "path", "app")
	if h := resp.Header; resp.StatusCode != http.StatusOK || h.Get("Content-Type") != "application/zip" || h.Get("Content-Disposition") != "attachment; filename=app.zip" ||
		!strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("status %d, headers %v", resp.StatusCode, h)
	}
	want := map[string]string{
		"app/large.bin": large, "app/run.sh": "#!/bin/sh\n", "app/src/": "/", "app/src/empty/": "/", "app/src/nothing": "",
		"app.left-out.txt": "app/..\\evil: an archive cannot have this name\napp/link: not a regular file\n",
	}
	got := unzip(t, data)
	if lines := strings.Split(strings.TrimSpace(got["app.left-out.txt"]), "\n"); len(lines) == 2 {
		slices.Sort(lines) // an agent lists in any order
		got["app.left-out.txt"] = strings.Join(lines, "\n") + "\n"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the archive (-want +got):\n%s", diff)
	}
	for _, f := range []struct {
		want  int
		query string
	}{{http.StatusNotFound, "nowhere"}, {http.StatusConflict, "secret"}, {http.StatusBadRequest, "a\x00"}} {
		w.status(f.want, http.MethodGet, "archive", nil, "path", f.query)
	}
	if resp, data := w.request("ann", http.MethodHead, "archive", nil, "path", "app"); resp.StatusCode != http.StatusOK || data != "" {
		t.Errorf("HEAD: %d, %d bytes", resp.StatusCode, len(data))
	}
}

// TestDownloadTreeOfHostileAgent checks that names of an agent stay in the archive's folder, and that what never ends is refused.
func TestDownloadTreeOfHostileAgent(t *testing.T) {
	t.Parallel()
	attrs := []any{1 | 4, uint64(1), 0o100644} // size and permissions
	file := func(name string) []any { return append([]any{name, ""}, attrs...) }
	listed := false
	folder := folderOf(func(id uint32) []byte {
		if listed {
			return packet(sftpStatus, id, 1, "", "")
		}
		listed = true
		fields := []any{id, 4}
		for _, name := range []string{"/etc/passwd", "../../out", "..", "a\nb"} {
			fields = append(fields, file(name)...)
		}
		return packet(sftpNames, fields...)
	})
	content := fileOf(1)
	w := filesAt(t, hostile(t, func(kind byte, id uint32, body []byte) func() []byte {
		if kind == sftpOpen || kind == sftpRead || kind == sftpFstat || kind == sftpStat {
			return content(kind, id, body)
		}
		return folder(kind, id, body)
	}))
	for name := range unzip(t, w.status(http.StatusOK, http.MethodGet, "archive", nil)) {
		if name != "home.left-out.txt" && !strings.HasPrefix(name, "home/") || strings.Contains(name, "..") {
			t.Errorf("the archive has %q", name)
		}
	}
	endless := filesAt(t, hostile(t, folderOf(func(id uint32) []byte {
		fields := []any{id, 100}
		for range 100 {
			fields = append(fields, file(strings.Repeat("n", 200))...)
		}
		return packet(sftpNames, fields...)
	})))
	if msg := endless.status(http.StatusRequestEntityTooLarge, http.MethodGet, "archive", nil); !strings.Contains(msg, "scp -r") {
		t.Errorf("an endless folder: %s", msg)
	}
}
