package slim_test

import (
	"compress/gzip"
	"crypto/sha1"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/codermesh/codermesh/coderd/slim"
	"github.com/codermesh/codermesh/internal/fault"
)

// get requests a binary as a client without automatic decompression does.
func get(t *testing.T, b *slim.Binaries, name string, header map[string]string) (*http.Response, error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/bin/"+name, nil)
	r.SetPathValue("name", name)
	for key, value := range header {
		r.Header.Set(key, value)
	}
	w := httptest.NewRecorder()
	err := b.ServeHTTP(w, r)
	return w.Result(), err
}

func TestServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stale := filepath.Join(dir, "coder-plan9-mips.0123.4567")
	if err := os.WriteFile(stale, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := slim.New(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("a binary of an earlier version was kept: %v", err)
	}
	own := "coder-" + runtime.GOOS + "-" + runtime.GOARCH
	resp, err := get(t, b, own, nil)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha1.New()
	size, err := io.Copy(hash, resp.Body)
	if err != nil || size == 0 {
		t.Fatalf("body: %d bytes, %v", size, err)
	}
	etag := `"` + hex.EncodeToString(hash.Sum(nil)) + `"`
	if got := resp.Header.Get("ETag"); got != etag {
		t.Errorf("ETag: got %s, want the SHA-1 of the body, %s", got, etag)
	}
	if got := resp.Header.Get("X-Original-Content-Length"); got != strconv.FormatInt(size, 10) {
		t.Errorf("X-Original-Content-Length: got %s, want %d", got, size)
	}
	resp, err = get(t, b, own, map[string]string{"If-None-Match": etag})
	if err != nil || resp.StatusCode != http.StatusNotModified {
		t.Errorf("with the file's ETag: got %v, %v, want 304", resp.Status, err)
	}
	resp, err = get(t, b, own, map[string]string{"Accept-Encoding": "br, gzip"})
	if err != nil {
		t.Fatal(err)
	}
	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	if unpacked, err := io.Copy(io.Discard, body); err != nil || unpacked != size {
		t.Errorf("packed: %d bytes, %v, want %d", unpacked, err, size)
	}
	if resp, _ := get(t, b, own, map[string]string{"Accept-Encoding": "gzip;q=0"}); resp.Header.Get("Content-Encoding") != "" {
		t.Error("a client that refuses gzip got it")
	}

	for _, name := range []string{"coder-plan9-mips", "..", "", "coder-linux-amd64.gz"} {
		if _, err := get(t, b, name, nil); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("binary %q: got %v, want not found", name, err)
		}
	}

	// After a restart, unpacked files are found and not unpacked again.
	again, err := slim.New(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	before := list(t, dir)
	if err := again.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := list(t, dir); len(after) != len(before) {
		t.Errorf("after a restart: got %v, want %v", after, before)
	}
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}
