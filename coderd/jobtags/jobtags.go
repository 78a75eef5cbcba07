// Package jobtags owns the rules for tags, which match jobs with provisioner daemons: which tags are valid, and when a
// daemon may take a job. It knows no job, no daemon and no database; LeaseJob implements the same rule in SQL.
package jobtags

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Tags that every job and every daemon has.
const (
	Scope = "scope" // Organization or User
	Owner = "owner" // the user's id with scope=user, otherwise empty

	Organization = "organization"
	User         = "user"
)

// Bounds on the length of keys and values, in bytes, and on the number of tags.
const (
	maxKey   = 64
	MaxValue = 256
	maxTags  = 32
)

// Check returns a fault, Invalid, for tags that a job cannot ask for: too many or too long ones, control characters, or
// a scope that does not exist.
func Check(tags map[string]string) error {
	if len(tags) > maxTags {
		return fault.New(fault.Invalid, "%d provisioner tags are too many: at most %d are allowed", len(tags), maxTags)
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		value := tags[key]
		switch {
		case key == "" || len(key) > maxKey || len(value) > MaxValue:
			return fault.New(fault.Invalid, "The provisioner tag %q is invalid", key[:min(len(key), maxKey)]).
				WithField("tags", fmt.Sprintf("a key must have 1 to %d bytes, a value at most %d", maxKey, MaxValue))
		case !utf8.ValidString(key+value) || strings.ContainsFunc(key+value, unicode.IsControl) || strings.ContainsAny(key, "= "):
			return fault.New(fault.Invalid, "The provisioner tag %q is invalid", key).
				WithField("tags",
					"a key cannot contain spaces or =, and neither key nor value can contain control characters")
		case key == Scope && value != Organization && value != User:
			return fault.New(fault.Invalid, "Provisioners have no scope %q", value).
				WithField("tags", "scope must be organization or user")
		}
	}
	return nil
}

// Normal returns tags with the scope and owner that every set has.
func Normal(tags map[string]string) map[string]string {
	out := map[string]string{Scope: Organization, Owner: ""}
	maps.Copy(out, tags)
	if out[Scope] != User {
		out[Scope], out[Owner] = Organization, ""
	}
	return out
}

// Own returns the tags except scope and owner.
func Own(tags map[string]string) map[string]string {
	out := maps.Clone(tags)
	delete(out, Scope)
	delete(out, Owner)
	return out
}

// Matches reports whether a daemon may take a job: the job's tags are a subset of the daemon's, and a job without its
// own tags goes only to a daemon without any. Both sets must be Normal.
func Matches(job, daemon map[string]string) bool {
	if len(Own(job)) == 0 && len(Own(daemon)) > 0 {
		return false
	}
	return len(Lacking(job, daemon)) == 0
}

// Lacking returns the job's tags that the daemon does not have, as k=v, in order.
func Lacking(job, daemon map[string]string) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(job)) {
		if value, ok := daemon[key]; !ok || value != job[key] {
			out = append(out, key+"="+job[key])
		}
	}
	return out
}
