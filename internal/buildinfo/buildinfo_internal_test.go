package buildinfo

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// suggested is the pattern that semver.org suggests. Clients in the field parse versions with patterns like it.
var suggested = regexp.MustCompile(`^v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$`)

func TestCompose(t *testing.T) {
	t.Parallel()
	const release, revision = "v2.31.10001+codermesh", "0c107b3dd1a2b3c4e5f60718293a4b5c6d7e8f90"
	for name, c := range map[string]struct {
		version  string
		released bool
		revision string
		dirty    bool
		want     string
	}{
		"a release":                      {release, true, revision, false, release},
		"a release of changed sources":   {release, true, revision, true, release},
		"a build between releases":       {release, false, revision, false, release + ".g0c107b3dd1a2"},
		"a build of changed sources":     {release, false, revision, true, release + ".g0c107b3dd1a2.dirty"},
		"a build without a repository":   {release, false, "", false, release},
		"a version without our name":     {"v2.31.10001", false, revision, false, "v2.31.10001+g0c107b3dd1a2"},
		"a commit that is all of digits": {release, false, strings.Repeat("0", 40), false, release + ".g000000000000"},
	} {
		got := compose(c.version, c.released, c.revision, c.dirty)
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if !suggested.MatchString(got) {
			t.Errorf("%s: %s is no semantic version", name, got)
		}
		if Compare(got, c.version) != 0 {
			t.Errorf("%s: %s and %s have different precedence", name, got, c.version)
		}
	}
}

func TestOfModule(t *testing.T) {
	t.Parallel()
	for main, want := range map[string]string{
		"v2.31.10001": "v2.31.10001+codermesh",
		// What Go notes for a build in a clone, between tags, of changed sources, and without a version.
		"v2.31.10002-0.20261128215302-0c107b3dd1a2": "", "v2.31.10001+dirty": "", "(devel)": "", "": "",
	} {
		if got := ofModule(main); got != want {
			t.Errorf("%q: got %q, want %q", main, got, want)
		}
	}
}

// TestCompare goes through versions in the order of their precedence, in groups that have the same one.
func TestCompare(t *testing.T) {
	t.Parallel()
	groups := [][]string{
		{"", "devel", "v2.31.x", "2.31.10001.4"},
		{"v0.1.0"},
		{"v2.31.0-alpha"}, {"v2.31.0-alpha.1"}, {"v2.31.0-alpha.2"}, {"v2.31.0-alpha.10"}, {"v2.31.0-alpha.x", "v2.31.0-alpha.x+9"}, {"v2.31.0-beta"},
		{"v2.31.0", "2.31.0", "v2.31"},
		{"v2.31.9999+codermesh"},
		{"v2.31.10001+codermesh", "v2.31.10001", "v2.31.10001+codermesh.g0c107b3dd1a2", "v2.31.10001+codermesh.gffffffffffff.dirty"},
		{"v2.31.10002+codermesh.g000000000000", "v2.31.10002+codermesh"},
		{"v2.32.0"}, {"v10.0.0"},
	}
	for i, first := range groups {
		for j, second := range groups {
			for _, a := range first {
				for _, b := range second {
					if got := Compare(a, b); sign(got) != sign(i-j) {
						t.Errorf("Compare(%q, %q) = %d, want the sign of %d", a, b, got, i-j)
					}
				}
			}
		}
	}
}

func sign(n int) int { return min(1, max(-1, n)) }

func TestDifference(t *testing.T) {
	t.Parallel()
	const release = "v2.31.10002+codermesh"
	for _, c := range []struct{ other, own, words, remedy string }{
		{release, release, "", ""},
		{release + ".g1", release + ".g1", "", ""},
		{"v2.31.10001+codermesh.g2", release, "an earlier version", "Upgrade rack-1 to " + release + "."},
		{"", release, "an earlier version", "Upgrade rack-1 to " + release + "."},
		{"v2.32.10003+codermesh", release, "a later version", "Upgrade this server to v2.32.10003+codermesh."},
		{release + ".g2", release + ".g1", "another commit of the same version", "Run one build everywhere: either install " + release + ".g1 there or " + release + ".g2 here."},
		{release + ".g1.dirty", release + ".g1", "another build of the same version", "Run one build everywhere: either install " + release + ".g1 there or " + release + ".g1.dirty here."},
		{release, release + ".g1", "another build of the same version", "Run one build everywhere: either install " + release + ".g1 there or " + release + " here."},
	} {
		if words, remedy := difference(c.other, c.own, "rack-1"); words != c.words || remedy != c.remedy {
			t.Errorf("%s beside %s: %q, %q, want %q, %q", c.other, c.own, words, remedy, c.words, c.remedy)
		}
	}
}

// TestCommitIsFoundInVersion reads commits back from versions.
func TestCommitIsFoundInVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v2.31.10001+codermesh": "", "v2.31.10001+codermesh.g0c10": "0c10", "v2.31.10001+g0c10": "0c10", "v2.31.10001+codermesh.g0c10.dirty": "0c10", "": "",
	} {
		if got := commit(version); got != want {
			t.Errorf("commit of %q is %q, want %q", version, got, want)
		}
	}
	if !slices.Contains([]string{"", Revision()[:min(len(Revision()), commitDigits)]}, commit(Version())) {
		t.Errorf("the version %s has another commit than %s", Version(), Revision())
	}
}
