package layout_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/semver"
)

// TestModuleIsFetched checks that Go finds the release whose number the file VERSION holds by its tag, and that what Go fetches is complete: the
// programs' packages and all files that they embed. Go asks a clone of the last commit instead of the project's address.
func TestModuleIsFetched(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(text)), "+")
	if !semver.IsValid(version) || semver.Canonical(version) != version || semver.Major(version) != module[strings.LastIndex(module, "/")+1:] {
		t.Fatalf("VERSION holds %s, which is no version of %s", version, module)
	}
	clone, cache := filepath.Join(t.TempDir(), "clone"), t.TempDir()
	known := strings.TrimSpace(run(t, root, nil, "go", "env", "GOMODCACHE"))
	run(t, root, nil, "git", "clone", "--quiet", "--bare", "--depth=1", "file://"+root, clone)
	for _, tag := range []string{version, "v2.99.99999+codermesh"} { // Go does not see the second one
		run(t, clone, nil, "git", "tag", tag, "HEAD")
	}
	fresh := []string{
		"GOMODCACHE=" + cache, "GOFLAGS=-modcacherw", "GOPROXY=file://" + known + "/cache/download,direct", "GOSUMDB=off", "GOWORK=off",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + clone + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + strings.TrimSuffix(module, "/v2"),
	}
	empty := t.TempDir()
	if got := run(t, empty, fresh, "go", "list", "-m", "-versions", module); got != module+" "+version+"\n" {
		t.Errorf("go list -m -versions: got %q, want %s", got, version)
	}
	run(t, empty, fresh, "go", "mod", "download", module+"@latest")
	fetched := filepath.Join(cache, filepath.FromSlash(module)+"@"+version)
	run(t, fetched, []string{"GOFLAGS=-mod=readonly"}, "go", "list", "-deps", "./cmd/coder", "./cmd/coder-slim")
}

// run returns what a command wrote. The environment is added to the test's own.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}
