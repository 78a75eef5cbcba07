package buildinfo_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/buildinfo"
)

// form matches what clients can read: three numbers without a pre-release, then our name, which they ignore.
var form = regexp.MustCompile(`^v2\.(\d+)\.(\d+)\+codermesh$`)

// TestVersion: clients compare versions by the rules of semver, and some by the three numbers alone. A pre-release ranks below the release
// that it names, and clients mistake a patch number of another program's release for that program.
func TestVersion(t *testing.T) {
	t.Parallel()
	next, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	patches := map[string]int{}
	for name, version := range map[string]string{"source": buildinfo.Version(), "VERSION": strings.TrimSpace(string(next))} {
		parts := form.FindStringSubmatch(version)
		if parts == nil {
			t.Errorf("%s: %q is not of the form %s", name, version, form)
			continue
		}
		if parts[1] != "31" {
			t.Errorf("%s: minor version %s is another than the other's", name, parts[1])
		}
		if patches[name], err = strconv.Atoi(parts[2]); err != nil || patches[name] < 10000 {
			t.Errorf("%s: patch number of %q, want 10000 and our release", name, version)
		}
	}
	if patches["VERSION"] <= patches["source"] {
		t.Errorf("a release (%d) ranks below a build without one (%d)", patches["VERSION"], patches["source"])
	}
}

// TestLinkedVersion builds a program with the linker flags of the Makefile: a release's has the version in VERSION, another one's names its
// commit in addition.
func TestLinkedVersion(t *testing.T) {
	t.Parallel()
	next, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	release := strings.TrimSpace(string(next))
	between := release
	if head, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output(); err == nil { // not an archive of the sources
		between += ".g" + string(head[:12])
	}
	for released, want := range map[string]string{"": between, "yes": release} {
		const rule = `ldflags: ; @printf "%s" "$(LDFLAGS)"`
		flags, err := exec.CommandContext(t.Context(), "make", "-s", "--no-print-directory", "-C", "../..", "--eval", rule, "ldflags", "RELEASED="+released).Output()
		if err != nil {
			t.Fatalf("ask the Makefile: %v", err)
		}
		program := filepath.Join(t.TempDir(), "version")
		build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=auto", "-ldflags", string(flags), "-o", program, "./testdata/version")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
		got, err := exec.CommandContext(t.Context(), program).Output()
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSuffix(string(got), ".dirty") != want {
			t.Errorf("RELEASED=%q: the program is %s, want %s", released, got, want)
		}
	}
}
