package buildinfo_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/internal/buildinfo"
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
