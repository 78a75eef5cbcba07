// Package buildinfo holds the program's version, and says how other versions differ from it.
package buildinfo

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"golang.org/x/mod/semver"
)

// ours is the build metadata of our versions. Tags are without it, because Go ignores a tag that has any.
const ours = "+codermesh"

const development = "v2.31.10000" + ours

// The linker sets them: -X github.com/codermesh/codermesh/v2/internal/buildinfo.version=v2.31.10001+codermesh.
var (
	version  = development
	released = "" // not empty in the programs of a release
	// the commit, with .dirty if the sources differ from it; empty: what Go noted, which skips worktrees of Git
	head = ""
)

// commitDigits is how much of a commit's hash a version contains.
const commitDigits = 12

const dirtySuffix = ".dirty"

var full = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == development {
		if installed := ofModule(info.Main.Version); installed != "" {
			return installed
		}
	}
	revision, dirty := Revision(), setting("vcs.modified") == "true"
	if head != "" {
		dirty = strings.HasSuffix(head, dirtySuffix)
	}
	return compose(version, released != "", revision, dirty)
})

// Version returns the program's semantic version. Clients in the field gate features on its major and minor numbers,
// which follow the API's. The patch number is 10000 plus the number of our release, so that it belongs to no other
// program, grows with each release, and needs no suffix that would rank it below its base. A build without a release is
// number 0. Builds between releases append their commit to the build metadata, which semver and all clients ignore when
// they compare: v2.31.10001+codermesh.g0123456789ab, with .dirty if the sources were changed since. A build that knows
// no commit, such as one from an archive of the sources, appends nothing.
func Version() string { return full() }

// ofModule returns the version of a program that Go built from a tagged version of the module, as `go install` does; ""
// if it built another one.
func ofModule(main string) string {
	if !semver.IsValid(main) || semver.Prerelease(main) != "" || semver.Build(main) != "" {
		return ""
	}
	return semver.Canonical(main) + ours
}

// compose appends the commit to a version, unless the program is a release's.
func compose(version string, released bool, revision string, dirty bool) string {
	if released || revision == "" {
		return version
	}
	separator := "."
	if !strings.Contains(version, "+") {
		separator = "+"
	}
	version += separator + "g" + revision[:min(len(revision), commitDigits)]
	if dirty {
		version += dirtySuffix
	}
	return version
}

// Revision returns the commit from which the program was built, or "".
func Revision() string {
	return cmp.Or(strings.TrimSuffix(head, dirtySuffix), setting("vcs.revision"))
}

// Time returns the time of the commit that the program was built from, as RFC 3339, or "" if that is unknown.
func Time() string { return setting("vcs.time") }

func setting(key string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// Compare orders two versions by the precedence of semver: negative if a is before b, and 0 if they differ in build
// metadata only, such as two commits of one version. A text that is no version precedes all versions.
func Compare(a, b string) int { return semver.Compare(withV(a), withV(b)) }

// withV returns a version with the v that package semver requires.
func withV(version string) string { return "v" + strings.TrimPrefix(version, "v") }

// commit returns the commit in a version, or "".
func commit(version string) string {
	for part := range strings.SplitSeq(strings.TrimPrefix(semver.Build(withV(version)), "+"), ".") {
		if hash, ok := strings.CutPrefix(part, "g"); ok {
			return hash
		}
	}
	return ""
}

// Difference says in words how another program's version differs from this program's, and what to do so that all run
// one build. Both are empty if they are the same build. The remedy calls the programs that have the other version
// which, such as "them".
func Difference(other, which string) (words, remedy string) {
	return difference(other, Version(), which)
}

func difference(other, own, which string) (words, remedy string) {
	order := Compare(other, own)
	switch {
	case other == own:
		return "", ""
	case order < 0:
		return "an earlier version", fmt.Sprintf("Upgrade %s to %s.", which, own)
	case order > 0:
		return "a later version", fmt.Sprintf("Upgrade this server to %s.", other)
	case commit(other) != "" && commit(own) != "" && commit(other) != commit(own):
		words = "another commit of the same version"
	default:
		words = "another build of the same version"
	}
	return words, fmt.Sprintf("Run one build everywhere: either install %s there or %s here.", own, other)
}
