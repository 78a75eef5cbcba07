// Package buildinfo holds the program's version, and says how other versions differ from it.
package buildinfo

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// The linker sets them: -X github.com/codermesh/codermesh/internal/buildinfo.version=v2.31.10001+codermesh.
var (
	version  = "v2.31.10000+codermesh"
	released = "" // not empty in the programs of a release
	head     = "" // the commit, with .dirty if the sources differ from it; empty: what Go noted, which skips worktrees of Git
)

// commitDigits is how much of a commit's hash a version contains.
const commitDigits = 12

const dirtySuffix = ".dirty"

var full = sync.OnceValue(func() string {
	revision, dirty := Revision(), setting("vcs.modified") == "true"
	if head != "" {
		dirty = strings.HasSuffix(head, dirtySuffix)
	}
	return compose(version, released != "", revision, dirty)
})

// Version returns the program's semantic version. Clients in the field gate features on its major and minor numbers, which follow the
// API's. The patch number is 10000 plus the number of our release, so that it belongs to no other program, grows with each release, and
// needs no suffix that would rank it below its base. A build without a release is number 0. Builds between releases append their commit
// to the build metadata, which semver and all clients ignore when they compare: v2.31.10001+codermesh.g0123456789ab, with .dirty if the
// sources were changed since. A build that knows no commit, such as one from an archive of the sources, appends nothing.
func Version() string { return full() }

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

// Compare orders two versions by the precedence of semver: negative if a is before b, and 0 if they differ in build metadata only, such as
// two commits of one version. A text that is no version precedes all versions.
func Compare(a, b string) int {
	first, second := parse(a), parse(b)
	for i := range first.numbers {
		if c := cmp.Compare(first.numbers[i], second.numbers[i]); c != 0 {
			return c
		}
	}
	return comparePre(first.pre, second.pre)
}

type parsed struct {
	numbers [3]int
	pre     string // pre-release
	build   string // build metadata
}

func parse(version string) parsed {
	var p parsed
	core, build, _ := strings.Cut(strings.TrimPrefix(version, "v"), "+")
	core, pre, _ := strings.Cut(core, "-")
	numbers := strings.Split(core, ".")
	if len(numbers) != len(p.numbers) {
		return parsed{numbers: [3]int{-1, -1, -1}}
	}
	for i, text := range numbers {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return parsed{numbers: [3]int{-1, -1, -1}}
		}
		p.numbers[i] = int(n)
	}
	p.pre, p.build = pre, build
	return p
}

// comparePre orders the pre-releases of one version. The version without one comes last.
func comparePre(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == "":
		return 1
	case b == "":
		return -1
	}
	first, second := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(first), len(second)) {
		x, errX := strconv.ParseUint(first[i], 10, 64)
		y, errY := strconv.ParseUint(second[i], 10, 64)
		c := strings.Compare(first[i], second[i])
		switch {
		case errX == nil && errY == nil:
			c = cmp.Compare(x, y)
		case errX == nil: // numbers precede words
			c = -1
		case errY == nil:
			c = 1
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(first), len(second))
}

// commit returns the commit in a version, or "".
func commit(version string) string {
	for part := range strings.SplitSeq(parse(version).build, ".") {
		if hash, ok := strings.CutPrefix(part, "g"); ok {
			return hash
		}
	}
	return ""
}

// Difference says in words how another program's version differs from this program's, and what to do so that all run one build. Both are
// empty if they are the same build. The remedy calls the programs that have the other version which, such as "them".
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
