//go:build packages

package packaging_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
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
	err = exec.CommandContext(ctx, "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "sh", "testdata/boot.sh", dir, script).Run()
	output, _ := os.ReadFile(filepath.Join(dir, "output"))
	if err != nil || !strings.HasSuffix(string(output), "complete\n") {
		console, _ := os.ReadFile(filepath.Join(dir, "console"))
		t.Errorf("%s: %v\n%s\nconsole:\n%s", script, err, output, console)
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
