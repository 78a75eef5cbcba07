package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/internal/fault"
)

// Tags that every job and every daemon has.
const (
	TagScope = "scope" // organization or user
	TagOwner = "owner" // the user's id with scope=user, else empty

	ScopeOrganization = "organization"
	ScopeUser         = "user"
)

// Bounds of tags, in bytes and in number.
const (
	maxTagKey   = 64
	maxTagValue = 256
	maxTags     = 32
)

// CheckTags returns a fault, Invalid, for tags that nobody may ask for: too many or too long ones, control characters, or a scope
// that does not exist.
func CheckTags(tags map[string]string) error {
	if len(tags) > maxTags {
		return fault.New(fault.Invalid, "%d provisioner tags are too many: %d are possible", len(tags), maxTags)
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		value := tags[key]
		switch {
		case key == "" || len(key) > maxTagKey || len(value) > maxTagValue:
			return fault.New(fault.Invalid, "The provisioner tag %q is not usable", cut(key, maxTagKey)).
				WithField("tags", fmt.Sprintf("a key has 1 to %d bytes, a value up to %d", maxTagKey, maxTagValue))
		case !utf8.ValidString(key+value) || strings.ContainsFunc(key+value, unicode.IsControl) || strings.ContainsAny(key, "= "):
			return fault.New(fault.Invalid, "The provisioner tag %q is not usable", key).
				WithField("tags", "a key holds no space and no =, and neither key nor value a control character")
		case key == TagScope && value != ScopeOrganization && value != ScopeUser:
			return fault.New(fault.Invalid, "There is no scope %q of provisioners", value).WithField("tags", "scope is organization or user")
		}
	}
	return nil
}

// normal returns tags with the scope and owner that every set has.
func normal(tags map[string]string) map[string]string {
	out := map[string]string{TagScope: ScopeOrganization, TagOwner: ""}
	maps.Copy(out, tags)
	if out[TagScope] != ScopeUser {
		out[TagScope], out[TagOwner] = ScopeOrganization, ""
	}
	return out
}

// own are the tags besides scope and owner.
func own(tags map[string]string) map[string]string {
	out := maps.Clone(tags)
	delete(out, TagScope)
	delete(out, TagOwner)
	return out
}

// matches reports whether a daemon may take a job: the job's tags are a subset of the daemon's, and a job without tags of its
// own goes only to a daemon without. Both sets are normal. ClaimJob says the same in SQL.
func matches(job, daemon map[string]string) bool {
	if len(own(job)) == 0 && len(own(daemon)) > 0 {
		return false
	}
	return len(lacking(job, daemon)) == 0
}

// lacking are the job's tags that the daemon does not have, as k=v, in order.
func lacking(job, daemon map[string]string) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(job)) {
		if value, ok := daemon[key]; !ok || value != job[key] {
			out = append(out, key+"="+job[key])
		}
	}
	return out
}

// Daemon is a provisioner daemon, as its place in the mesh shows.
type Daemon struct {
	ID      uuid.UUID
	Name    string
	Tags    map[string]string
	Owner   uuid.UUID // of one with scope=user
	BuiltIn bool
	KeyID   uuid.UUID // of the key by which it joined, zero for other ways
	KeyName string    // of that key; KeyUser for a user's session. Empty: KeyBuiltIn or KeyPSK
}

// keyName is what lists show as the key.
func (d Daemon) keyName() string {
	switch {
	case d.KeyName != "":
		return d.KeyName
	case d.BuiltIn:
		return KeyBuiltIn
	case d.Tags[TagScope] == ScopeUser:
		return KeyUser
	}
	return KeyPSK
}

// Names of the ways by which a daemon may have joined without a key, where clients expect a key's.
const (
	KeyBuiltIn = "built-in"
	KeyUser    = "user-auth"
	KeyPSK     = "psk"
)

// candidate is what the reason needs to know of a daemon.
type candidate struct {
	name string
	tags map[string]string
	busy bool
	seen *time.Time // of one that is offline
}

// waitingReason says why a job with these tags does not run, "" when an idle daemon may take it.
func waitingReason(job map[string]string, online, offline []candidate, position int) string {
	// Other people's own provisioners are nobody else's business.
	others := func(c candidate) bool { return c.tags[TagScope] == ScopeUser && c.tags[TagOwner] != job[TagOwner] }
	online, offline = slices.DeleteFunc(slices.Clone(online), others), slices.DeleteFunc(slices.Clone(offline), others)
	reason := whyNobody(job, online, position)
	if slices.ContainsFunc(online, func(c candidate) bool { return matches(job, c.tags) }) {
		return reason
	}
	// Who would take it if it came back: the one that was seen last.
	var best *candidate
	for _, c := range offline {
		if matches(job, c.tags) && c.seen != nil && (best == nil || c.seen.After(*best.seen)) {
			best = &c
		}
	}
	if best != nil {
		reason += fmt.Sprintf(" %s would take it, but is offline since %s.", best.name, best.seen.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return reason
}

func whyNobody(job map[string]string, online []candidate, position int) string {
	if len(online) == 0 {
		return "No provisioner is online."
	}
	matching := slices.DeleteFunc(slices.Clone(online), func(c candidate) bool { return !matches(job, c.tags) })
	if len(matching) > 0 {
		if slices.ContainsFunc(matching, func(c candidate) bool { return !c.busy }) {
			return ""
		}
		return fmt.Sprintf("All %d matching provisioners are busy; position %d in the queue.", len(matching), position)
	}
	if job[TagScope] == ScopeUser {
		if !slices.ContainsFunc(online, func(c candidate) bool { return c.tags[TagOwner] == job[TagOwner] }) {
			return "No provisioner of this user (scope=user) is online."
		}
	}
	if len(own(job)) == 0 {
		return fmt.Sprintf("Every provisioner online has tags and takes only jobs with tags; this one has none. Nearest: %s.", online[0].name)
	}
	nearest, missing := online[0], lacking(job, online[0].tags)
	for _, c := range online[1:] {
		if l := lacking(job, c.tags); len(l) < len(missing) {
			nearest, missing = c, l
		}
	}
	return fmt.Sprintf("No provisioner online has %s. Nearest: %s lacks %s.", strings.Join(nobodyHas(job, online), " and "), nearest.name, strings.Join(missing, ", "))
}

// nobodyHas are the job's tags that no daemon has; when each has somebody, all of the job's own: no daemon has them together.
func nobodyHas(job map[string]string, online []candidate) []string {
	var out []string
	for _, tag := range lacking(own(job), nil) {
		if !slices.ContainsFunc(online, func(c candidate) bool { k, v, _ := strings.Cut(tag, "="); return c.tags[k] == v }) {
			out = append(out, tag)
		}
	}
	if len(out) == 0 {
		return lacking(own(job), nil)
	}
	return out
}
