package slim_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/codermesh/codermesh/v2/coderd/slim"
)

// A server that embeds no slim binaries serves its own executable, here the test's. Installed as "coder", it plays the CLI.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "coder" {
		fmt.Println("pretend", strings.Join(os.Args[1:], " "))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// plan9 stands for a program that a server embeds.
const plan9 = "a program for Plan 9"

// open returns the binaries of a server at accessURL that embeds no slim binaries, but one for another platform.
func open(t *testing.T, dir, accessURL string) *slim.Binaries {
	t.Helper()
	u, err := url.Parse(accessURL)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, plan9); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	b, err := slim.Open(fstest.MapFS{"dist/coder-plan9-386.gz": {Data: packed.Bytes()}, "dist/.gitkeep": {}}, dir, u)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

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
	b := open(t, dir, "https://coder.example.com")
	if err := b.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("a binary of an earlier version was kept: %v", err)
	}
	full := "coder-full-" + runtime.GOOS + "-" + runtime.GOARCH
	if !b.Hashed("coder-plan9-386") || b.Hashed(full) {
		t.Error("Prepare must unpack what is embedded, and not read the whole program at each start")
	}
	serves(t, b, "coder-plan9-386", true)
	own := "coder-" + runtime.GOOS + "-" + runtime.GOARCH
	serves(t, b, own, false)
	serves(t, b, full, false)

	for _, name := range []string{"coder-plan9-mips", "..", "", "coder-plan9-386.gz", "coder-plan9-mips.sha256", ".sha256", "SHA256SUMS.sha256"} {
		resp, err := get(t, b, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		text := read(t, resp)
		if resp.StatusCode != http.StatusNotFound || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("binary %q: got %s, %s, want 404 in plain text", name, resp.Status, resp.Header.Get("Content-Type"))
		}
		for _, want := range []string{strconv.Quote(name), "\n  " + own + "\n", "make build SLIM=all"} {
			if !strings.Contains(text, want) {
				t.Errorf("binary %q: the answer lacks %q:\n%s", name, want, text)
			}
		}
	}

	// After a restart, unpacked files are found and not unpacked again.
	again := open(t, dir, "https://coder.example.com")
	before := list(t, dir)
	if err := again.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := list(t, dir); len(after) != len(before) {
		t.Errorf("after a restart: got %v, want %v", after, before)
	}
}

// serves checks one binary: whole, unchanged, and packed if packs.
func serves(t *testing.T, b *slim.Binaries, name string, packs bool) {
	t.Helper()
	resp, err := get(t, b, name, nil)
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
	resp, err = get(t, b, name, map[string]string{"If-None-Match": etag})
	if err != nil || resp.StatusCode != http.StatusNotModified {
		t.Errorf("with the file's ETag: got %v, %v, want 304", resp.Status, err)
	}
	resp, err = get(t, b, name, map[string]string{"Accept-Encoding": "br, gzip"})
	if err != nil {
		t.Fatal(err)
	}
	body := io.Reader(resp.Body)
	if got := resp.Header.Get("Content-Encoding") == "gzip"; got != packs {
		t.Errorf("packed for a client that accepts it: got %v, want %v", got, packs)
	}
	if packs {
		if body, err = gzip.NewReader(resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	if unpacked, err := io.Copy(io.Discard, body); err != nil || unpacked != size {
		t.Errorf("packed: %d bytes, %v, want %d", unpacked, err, size)
	}
	if resp, _ := get(t, b, name, map[string]string{"Accept-Encoding": "gzip;q=0"}); resp.Header.Get("Content-Encoding") != "" {
		t.Error("a client that refuses gzip got it")
	}
}

// The list of checksums is what sha256sum --check reads, and each binary has its own.
func TestChecksums(t *testing.T) {
	t.Parallel()
	b := open(t, t.TempDir(), "https://coder.example.com")
	resp, err := get(t, b, "SHA256SUMS", nil)
	if err != nil {
		t.Fatal(err)
	}
	sums, etag := read(t, resp), resp.Header.Get("ETag")
	seen := map[string]bool{}
	for line := range strings.Lines(sums) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		seen[name] = true
		resp, err := get(t, b, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		hash := sha256.New()
		if _, err := io.Copy(hash, resp.Body); err != nil || hex.EncodeToString(hash.Sum(nil)) != sum {
			t.Errorf("%s: got SHA-256 %x (%v), the list has %s", name, hash.Sum(nil), err, sum)
		}
		if resp, err = get(t, b, name+".sha256", nil); err != nil || read(t, resp) != line {
			t.Errorf("%s.sha256 differs from the list's line %q: %v", name, line, err)
		}
	}
	platform := runtime.GOOS + "-" + runtime.GOARCH
	if !seen["coder-"+platform] || !seen["coder-full-"+platform] {
		t.Errorf("the list lacks this platform's programs:\n%s", sums)
	}
	if resp, err = get(t, b, "SHA256SUMS", map[string]string{"If-None-Match": etag}); err != nil || resp.StatusCode != http.StatusNotModified {
		t.Errorf("with the list's ETag: got %s, %v, want 304", resp.Status, err)
	}
}

func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}
