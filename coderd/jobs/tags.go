package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Tags that every job and every daemon has.
const (
	tagScope = "scope" // organization or user
	tagOwner = "owner" // the user's id with scope=user, else empty

	scopeOrganization = "organization"
	scopeUser         = "user"
)

// normal returns tags with the scope and owner that every set has.
func normal(tags map[string]string) map[string]string {
	out := map[string]string{tagScope: scopeOrganization, tagOwner: ""}
	maps.Copy(out, tags)
	if out[tagScope] != scopeUser {
		out[tagScope], out[tagOwner] = scopeOrganization, ""
	}
	return out
}

// own are the tags besides scope and owner.
func own(tags map[string]string) map[string]string {
	out := maps.Clone(tags)
	delete(out, tagScope)
	delete(out, tagOwner)
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
}

// candidate is what the reason needs to know of a daemon.
type candidate struct {
	name string
	tags map[string]string
	busy bool
}

// waitingReason says in one sentence why a job with these tags does not run, "" when an idle daemon may take it.
func waitingReason(job map[string]string, online []candidate, position int) string {
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
	if job[tagScope] == scopeUser {
		if !slices.ContainsFunc(online, func(c candidate) bool { return c.tags[tagOwner] == job[tagOwner] }) {
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
