package agents_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

func TestListFiles(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	w.write("notes.txt", "hello", 0o640)
	w.write(".hidden", "", 0o600)
	for _, make := range []func() error{
		func() error { return os.Mkdir(filepath.Join(w.home, "src"), 0o755) },
		func() error { return os.Symlink("notes.txt", filepath.Join(w.home, "to-file")) },
		func() error { return os.Symlink("src", filepath.Join(w.home, "to-folder")) },
		func() error { return os.Symlink("nowhere", filepath.Join(w.home, "to-nothing")) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
	}
	got := w.list()
	type entry struct {
		name       string
		kind       sdk.AgentFileKind
		size       int64
		mode       string
		target     string
		targetKind sdk.AgentFileKind
	}
	var shown []entry
	for _, f := range got.Files {
		if f.ModifiedAt.IsZero() {
			t.Errorf("%s: no time", f.Name)
		}
		size := f.Size
		if f.Kind == sdk.AgentFileFolder || f.LinkKind != sdk.AgentFileRegular && f.Kind == sdk.AgentFileLink {
			size = 0 // depends on the file system
		}
		shown = append(shown, entry{f.Name, f.Kind, size, f.Mode, f.LinkTarget, f.LinkKind})
	}
	want := []entry{
		{".hidden", "file", 0, "-rw-------", "", ""}, {"notes.txt", "file", 5, "-rw-r-----", "", ""}, {"src", "folder", 0, "drwxr-xr-x", "", ""},
		{"to-file", "link", 5, "Lrwxrwxrwx", "notes.txt", "file"}, {"to-folder", "link", 0, "Lrwxrwxrwx", "src", "folder"},
		{"to-nothing", "link", 0, "Lrwxrwxrwx", "nowhere", ""},
	}
	if diff := cmp.Diff(want, shown, cmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got.Path != w.home || got.Cut {
		t.Errorf("the home folder is %q, cut %t; want %q", got.Path, got.Cut, w.home)
	}
	for p, want := range map[string]string{"~": w.home, "~/src": w.home + "/src", "src": w.home + "/src", w.home + "/src/../src": w.home + "/src", "/": "/"} {
		if got := w.list("path", p); got.Path != want {
			t.Errorf("%q is %q, want %q", p, got.Path, want)
		}
	}
	if got := w.list("path", "to-folder"); got.Path != w.home+"/to-folder" || len(got.Files) != 0 {
		t.Errorf("through a link: %+v", got)
	}
	if msg := w.status(http.StatusNotFound, http.MethodGet, "", nil, "path", "nowhere"); !strings.Contains(msg, "does not exist") {
		t.Errorf("a folder that does not exist: %s", msg)
	}
	w.status(http.StatusConflict, http.MethodGet, "", nil, "path", "notes.txt")
	w.status(http.StatusBadRequest, http.MethodGet, "", nil, "path", strings.Repeat("a/", 2049))
	w.status(http.StatusBadRequest, http.MethodGet, "", nil, "path", "a\x00b")
}

func TestDownloadFile(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	large := strings.Repeat("0123456789abcdef", 20<<10) // many packets
	w.write("large.bin", large, 0o644)
	w.write("page.html", "<script>alert(1)</script>", 0o644)
	w.write("ü \"x\".png", "not really", 0o644)
	w.write("empty", "", 0o644)
	if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", "large.bin"); got != large {
		t.Errorf("got %d bytes, want the file's %d", len(got), len(large))
	}
	if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", "empty"); got != "" {
		t.Errorf("an empty file has %q", got)
	}
	for limit, want := range map[string]string{"0": "", "1": "0", "40000": large[:40000], "1000000": large} {
		if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", "large.bin", "limit", limit); got != want {
			t.Errorf("limit %s: got %d bytes, want %d", limit, len(got), len(want))
		}
	}
	// A page with the dashboard's origin could act as its user. So no file becomes one.
	for name, kind := range map[string]string{"page.html": "application/octet-stream", "ü \"x\".png": "image/png"} {
		resp, _ := w.request("ann", http.MethodGet, "content", nil, "path", name)
		h := resp.Header
		if h.Get("Content-Type") != kind || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment; filename") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Content-Security-Policy") != "default-src 'none'; frame-ancestors 'none'; sandbox" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" ||
			h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", name, h)
		}
	}
	if resp, _ := w.request("ann", http.MethodHead, "content", nil, "path", "large.bin"); resp.ContentLength != int64(len(large)) {
		t.Errorf("HEAD: length %d, want %d", resp.ContentLength, len(large))
	}
	if msg := w.status(http.StatusConflict, http.MethodGet, "content", nil, "path", w.home); !strings.Contains(msg, "folder") {
		t.Errorf("a folder: %s", msg)
	}
	w.status(http.StatusConflict, http.MethodGet, "content", nil, "path", "/dev/zero") // it has no end
	w.status(http.StatusNotFound, http.MethodGet, "content", nil, "path", "nowhere")
	w.status(http.StatusBadRequest, http.MethodGet, "content", nil, "path", "")
	w.status(http.StatusBadRequest, http.MethodGet, "content", nil, "path", "large.bin", "limit", "-1")
	if _, err := os.Stat("/proc/self/status"); err == nil { // it says that it is empty
		if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", "/proc/self/status"); !strings.Contains(got, "Pid:") {
			t.Errorf("/proc/self/status: %q", got)
		}
	}
}

func TestUploadFile(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	large := strings.Repeat("0123456789abcdef", 20<<10)
	var made sdk.AgentFile
	if err := json.Unmarshal([]byte(w.status(http.StatusOK, http.MethodPut, "content", strings.NewReader(large), "path", "large.bin")), &made); err != nil {
		t.Fatal(err)
	}
	if made.Name != "large.bin" || made.Size != int64(len(large)) || made.Kind != sdk.AgentFileRegular {
		t.Errorf("made %+v", made)
	}
	read := func(name string) string {
		t.Helper()
		got, err := os.ReadFile(filepath.Join(w.home, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	if read("large.bin") != large {
		t.Error("the file has another content")
	}
	w.status(http.StatusOK, http.MethodPut, "content", http.NoBody, "path", "empty")
	if got := read("empty"); got != "" {
		t.Errorf("an empty upload made %q", got)
	}
	// A file that is there stays, unless it is to be replaced, and then keeps its rights.
	w.write("secret", "old", 0o600)
	w.status(http.StatusConflict, http.MethodPut, "content", strings.NewReader("new"), "path", "secret")
	if got := read("secret"); got != "old" {
		t.Errorf("a refused upload made it %q", got)
	}
	w.status(http.StatusOK, http.MethodPut, "content", strings.NewReader("new"), "path", "secret", "overwrite", "true")
	if info, err := os.Stat(filepath.Join(w.home, "secret")); err != nil || read("secret") != "new" || info.Mode().Perm() != 0o600 {
		t.Errorf("replaced: %q, %v, %v", read("secret"), info, err)
	}
	// A link stays one.
	if err := os.Symlink("secret", filepath.Join(w.home, "link")); err != nil {
		t.Fatal(err)
	}
	w.status(http.StatusOK, http.MethodPut, "content", strings.NewReader("newer"), "path", "link", "overwrite", "true")
	if target, err := os.Readlink(filepath.Join(w.home, "link")); err != nil || target != "secret" || read("secret") != "newer" {
		t.Errorf("through a link: it leads to %q, %v, where %q is", target, err, read("secret"))
	}
	if err := os.Mkdir(filepath.Join(w.home, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.status(http.StatusConflict, http.MethodPut, "content", strings.NewReader("x"), "path", "src", "overwrite", "true")
	w.status(http.StatusNotFound, http.MethodPut, "content", strings.NewReader("x"), "path", "nowhere/file")
	w.status(http.StatusBadRequest, http.MethodPut, "content", strings.NewReader("x"), "path", "src/..")
	if got, want := w.names(), []string{"empty", "large.bin", "link", "secret", "src"}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
}

// TestBrokenUpload checks that an upload that ends early leaves what was there.
func TestBrokenUpload(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	w.write("data", "whole", 0o644)
	body, send := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		resp, err := w.send("ann", http.MethodPut, "content", body, "path", "data", "overwrite", "true")
		if err == nil {
			resp.Body.Close()
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		failed <- err
	}()
	if _, err := send.Write(bytes.Repeat([]byte("half"), 64<<10)); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the upload has begun", func() error {
		return testwait.Equal(len(w.names()), 2)
	})
	send.CloseWithError(errors.New("the laptop is closed"))
	if err := <-failed; err == nil {
		t.Error("the upload succeeded")
	}
	testwait.Until(t, "the half is gone", func() error {
		if diff := cmp.Diff([]string{"data"}, w.names()); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	if got, err := os.ReadFile(filepath.Join(w.home, "data")); err != nil || string(got) != "whole" {
		t.Errorf("the file has %q, %v", got, err)
	}
}

func TestUploadIsBounded(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.url.JoinPath("/api/v2/workspaceagents", w.agent.String(), "files/content").String()+"?path=huge", &never{})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(sdk.SessionHeader, w.Token("ann"))
	req.Header.Set("Expect", "100-continue")
	req.ContentLength = 10<<30 + 1
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 1 << 40}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge || len(w.names()) != 0 {
		t.Errorf("status %d, files %q", resp.StatusCode, w.names())
	}
}

// never is a body that the server must not ask for.
type never struct{}

func (never) Read([]byte) (int, error) { return 0, errors.New("the body was asked for") }

func TestChangeFiles(t *testing.T) {
	t.Parallel()
	w := withFiles(t)
	rename := func(want int, from, to string) {
		t.Helper()
		body, err := json.Marshal(sdk.RenameAgentFileRequest{Path: from, NewPath: to})
		if err != nil {
			t.Fatal(err)
		}
		w.status(want, http.MethodPatch, "", bytes.NewReader(body))
	}
	w.status(http.StatusOK, http.MethodPut, "folder", nil, "path", "src")
	w.status(http.StatusConflict, http.MethodPut, "folder", nil, "path", "src")
	w.write("a", "1", 0o644)
	w.write("b", "2", 0o644)
	rename(http.StatusConflict, "a", "b") // which would be lost
	rename(http.StatusNoContent, "a", "src/a")
	rename(http.StatusNotFound, "a", "c")
	rename(http.StatusBadRequest, "b", "..")
	if msg := w.status(http.StatusConflict, http.MethodDelete, "", nil, "path", "src"); !strings.Contains(msg, "not empty") {
		t.Errorf("a folder with files: %s", msg)
	}
	if err := os.Symlink("src", filepath.Join(w.home, "link")); err != nil {
		t.Fatal(err)
	}
	w.status(http.StatusNoContent, http.MethodDelete, "", nil, "path", "link") // not what it leads to
	w.status(http.StatusNoContent, http.MethodDelete, "", nil, "path", "src/a")
	w.status(http.StatusNoContent, http.MethodDelete, "", nil, "path", "src")
	w.status(http.StatusNotFound, http.MethodDelete, "", nil, "path", "src")
	w.status(http.StatusBadRequest, http.MethodDelete, "", nil, "path", "")
	if got := w.names(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("there are %q, want b", got)
	}
}

// TestFilesAtTheSameTime checks that a user cannot hold more than a few connections, and that they end with the
// workspace and the server.
func TestFilesAtTheSameTime(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 32)
	w := filesAt(t, silent(t, asked))
	answers := make(chan int, 8)
	for range 8 {
		go func() {
			resp, err := w.send("ann", http.MethodGet, "", nil)
			if err != nil {
				answers <- 0
				return
			}
			resp.Body.Close()
			answers <- resp.StatusCode
		}()
		<-asked
	}
	w.status(http.StatusTooManyRequests, http.MethodGet, "", nil)
	w.stop()
	for range 8 {
		if status := <-answers; status != http.StatusServiceUnavailable {
			t.Errorf("status %d, want 503: the server stops", status)
		}
	}
}
