//go:build packages

package packaging_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// deadline bounds a container's life.
const deadline = 5 * time.Minute

// TestPackages installs, upgrades and removes the packages of build/coder in a booted container. The container is a copy of this
// machine's file system, with its PostgreSQL and Terraform.
func TestPackages(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("boots a container: run as root")
	}
	for _, kind := range []string{"deb", "rpm"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if _, err := os.Stat("../build/coder"); err != nil {
				t.Fatalf("%v: run `make build` first", err)
			}
			pack(t, kind, "build/coder", "2.31.10001", filepath.Join(dir, "one."+kind))
			pack(t, kind, "build/coder", "2.31.10002", filepath.Join(dir, "two."+kind))
			boot(t, dir, kind+".sh")
		})
	}
}

// TestPackagesAreReproducible: the bytes of a package depend on its contents, not on the time and folder of the build.
func TestPackagesAreReproducible(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"deb", "rpm", "apk"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			build := func(text string, built time.Time) string {
				dir := t.TempDir()
				program, path := filepath.Join(dir, "coder"), filepath.Join(dir, "package")
				if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(program, built, built); err != nil {
					t.Fatal(err)
				}
				pack(t, kind, program, "2.31.10001", path)
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				return string(data)
			}
			one := build("program", time.Unix(1000000000, 0))
			if two := build("program", time.Unix(1700000000, 0)); one != two {
				t.Errorf("two builds differ: %d and %d bytes", len(one), len(two))
			}
			if other := build("another program", time.Unix(1000000000, 0)); one == other {
				t.Error("packages of different programs are equal: the comparison is broken")
			}
		})
	}
}

// TestContents lists what each package installs. An apk package is read only here: its system has no unit that could be started.
func TestContents(t *testing.T) {
	t.Parallel()
	program := []string{
		"-rwxr-xr-x root/root /usr/bin/coder", "-rw-r--r-- root/root /usr/share/doc/codermesh/NOTICES.txt",
		"-rw-r--r-- root/root /usr/share/doc/codermesh/copyright", "-rw-r--r-- root/root /usr/share/man/man1/coder.1.gz",
	}
	all := append([]string{
		"drwxr-xr-x root/root /etc/codermesh",
		"-rw------- root/root /etc/codermesh/provisionerd.env",
		"-rw------- root/root /etc/codermesh/server.env",
		"-rw-r--r-- root/root /usr/share/codermesh/account-per-job.conf",
		"-rw-r--r-- root/root /usr/lib/systemd/system/coder-connect@.service",
		"-rw-r--r-- root/root /usr/lib/systemd/system/codermesh-provisionerd.service",
		"-rw-r--r-- root/root /usr/lib/systemd/system/codermesh.service",
	}, program...)
	for kind, c := range map[string]struct {
		list func(*testing.T, string) []string
		want []string
	}{"deb": {debFiles, all}, "rpm": {rpmFiles, all}, "apk": {apkFiles, program}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "package")
			pack(t, kind, "LICENSE", "2.31.10001", path)
			files := c.list(t, path)
			got := slices.DeleteFunc(slices.Clone(files), func(f string) bool { return strings.Contains(f, "/man1/coder-") })
			if len(files) < len(got)+50 {
				t.Errorf("%d manual pages of commands", len(files)-len(got))
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatalf("%s: %v: run scripts/test-prerequisites", name, err)
	}
	return string(out)
}

func debFiles(t *testing.T, path string) (files []string) {
	t.Helper()
	for line := range strings.Lines(output(t, "dpkg-deb", "--contents", path)) {
		f := strings.Fields(line) // mode, owner, size, date, time, path
		if name := strings.TrimSuffix(f[5], "/"); f[0][0] != 'd' || name == "./etc/codermesh" {
			files = append(files, f[0]+" "+f[1]+" "+name[1:])
		}
	}
	return files
}

func rpmFiles(t *testing.T, path string) []string {
	t.Helper()
	text := output(t, "rpm", "--query", "--package", path, "--queryformat", `[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES}\n]`)
	return strings.Split(strings.TrimSpace(text), "\n")
}

func apkFiles(t *testing.T, path string) (files []string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(packed); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg && h.Name[0] != '.' { // a name with a dot describes the package
			files = append(files, h.FileInfo().Mode().String()+" "+h.Uname+"/"+h.Gname+" /"+h.Name)
		}
	}
}

// pack makes a package as the Makefile does.
func pack(t *testing.T, kind, program, version, path string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=tools/release/go.mod", "nfpm", "package", "--config", "packaging/nfpm.yaml", "--packager", kind, "--target", path)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "VERSION="+version, "PROGRAM="+program, "ARCH="+runtime.GOARCH, "SOURCE_DATE_EPOCH=1767225600")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nfpm: %v\n%s", err, out)
	}
}

// boot runs a script of testdata in a container in which dir is /test.
func boot(t *testing.T, dir, script string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", script))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, script), text, 0o600); err != nil {
		t.Fatal(err)
	}
	terraform(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "sh", "testdata/boot.sh", dir, script, t.TempDir())
	cmd.Stderr = t.Output()
	err = cmd.Run()
	groups, _ := os.ReadFile(filepath.Join(dir, "groups"))
	for group := range strings.FieldsSeq(string(groups)) { // all processes in them have ended with the namespaces
		if out, err := exec.CommandContext(t.Context(), "find", group, "-depth", "-type", "d", "-delete").CombinedOutput(); err != nil {
			t.Errorf("remove control group: %v\n%s", err, out)
		}
	}
	text, _ = os.ReadFile(filepath.Join(dir, "output"))
	console, _ := os.ReadFile(filepath.Join(dir, "console"))
	if err != nil || !strings.Contains(string(text), "\ncomplete\n") {
		t.Errorf("%s: %v\nIts last lines:\n%s\nThe console's:\n%s", script, err, last(text, 70), last(console, 20))
		keep(t, script+".log", text)
		keep(t, script+".console.log", console)
	} else if testing.Verbose() {
		t.Logf("%s\n%s", script, text)
	}
}

// last returns the last n lines of a text.
func last(text []byte, n int) string {
	lines := strings.SplitAfter(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// keep writes a file into the folder of logs that a run of the suite names, if it runs as a part of one.
func keep(t *testing.T, name string, data []byte) {
	t.Helper()
	dir := os.Getenv("TEST_LOGS")
	if dir == "" {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Error(err)
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Error(err)
	}
}

// terraform puts Terraform or OpenTofu, wherever this machine has it, where the container's services find it.
func terraform(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"terraform", "tofu"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("neither terraform nor tofu is on PATH: run scripts/test-prerequisites")
}
