package jobs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Daemon is a provisioner daemon, as its place in the mesh identifies it.
type Daemon struct {
	ID      uuid.UUID
	Name    string
	Tags    map[string]string
	Owner   uuid.UUID // the owner of a daemon with scope=user
	BuiltIn bool
	// Organization is whose jobs the daemon takes; zero: the default one. A built-in daemon takes those of all
	// organizations.
	Organization uuid.UUID
	KeyID        uuid.UUID // the key by which it joined, zero if it joined another way
	KeyName      string    // the name of that key; sdk.KeyUser for a user's session. Empty: sdk.KeyBuiltIn or sdk.KeyPSK
}

// keyName returns what lists show as the key.
func (d Daemon) keyName() string {
	switch {
	case d.KeyName != "":
		return d.KeyName
	case d.BuiltIn:
		return sdk.KeyBuiltIn
	case d.Tags[jobtags.Scope] == jobtags.User:
		return sdk.KeyUser
	}
	return sdk.KeyPSK
}

// candidate holds what waitingReason and paces need to know about a daemon.
type candidate struct {
	id   uuid.UUID // of a daemon that is online
	name string
	tags map[string]string
	busy bool
	// until is when its server, which is stopping, interrupts what it runs; zero: the server goes on. It takes no job.
	until time.Time
	seen  *time.Time // when an offline daemon was last seen
}

func (c candidate) leaves() bool { return !c.until.IsZero() }

// waitingReason returns why a job with these tags does not run, "" when an idle daemon may take it.
func waitingReason(job map[string]string, online, offline []candidate, position int) string {
	// Only the user sees the user's own provisioners.
	others := func(c candidate) bool {
		return c.tags[jobtags.Scope] == jobtags.User && c.tags[jobtags.Owner] != job[jobtags.Owner]
	}
	online, offline = slices.DeleteFunc(slices.Clone(online), others), slices.DeleteFunc(slices.Clone(offline), others)
	reason := whyNoDaemon(job, online, position)
	if slices.ContainsFunc(online, func(c candidate) bool { return jobtags.Matches(job, c.tags) }) {
		return reason
	}
	// Find the offline daemon that would take the job if it came back: the one seen last.
	var best *candidate
	for _, c := range offline {
		if jobtags.Matches(job, c.tags) && c.seen != nil && (best == nil || c.seen.After(*best.seen)) {
			best = &c
		}
	}
	if best != nil {
		reason += fmt.Sprintf(" %s could run it, but has been offline since %s.", best.name,
			best.seen.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return reason
}

// waitingRemedy returns what to do so that a job with these tags runs, "" when a provisioner that is online will take
// it.
func waitingRemedy(job map[string]string, online []candidate) string {
	switch able := matching(job, online); {
	case whyLeaving(able) != "":
		return "It runs once a server is back, or earlier if another provisioner comes that may take it."
	case len(able) > 0:
		return ""
	}
	which := "a provisioner"
	if job[jobtags.Scope] == jobtags.User {
		which = "a provisioner of this user"
	}
	if own := jobtags.Lacking(jobtags.Own(job), nil); len(own) > 0 {
		return "Start " + which + " with " + strings.Join(own, ", ") + ", or cancel the job and choose other tags."
	}
	return "Start " + which + " without tags, or ask an admin to."
}

func whyNoDaemon(job map[string]string, online []candidate, position int) string {
	if len(online) == 0 {
		return "No provisioner is online."
	}
	able := matching(job, online)
	if reason := whyLeaving(able); reason != "" {
		return reason
	}
	able = slices.DeleteFunc(able, candidate.leaves)
	if len(able) > 0 {
		if slices.ContainsFunc(able, func(c candidate) bool { return !c.busy }) {
			return ""
		}
		which := "The matching provisioner is"
		if len(able) > 1 {
			which = fmt.Sprintf("All %d matching provisioners are", len(able))
		}
		return fmt.Sprintf("%s busy; position %d in the queue.", which, position)
	}
	if job[jobtags.Scope] == jobtags.User {
		if !slices.ContainsFunc(online, func(c candidate) bool { return c.tags[jobtags.Owner] == job[jobtags.Owner] }) {
			return "No provisioner of this user (scope=user) is online."
		}
	}
	if len(jobtags.Own(job)) == 0 {
		return fmt.Sprintf("Every online provisioner has tags and accepts only jobs with tags, and this job has none. Nearest: %s.", online[0].name)
	}
	nearest, missing := online[0], jobtags.Lacking(job, online[0].tags)
	for _, c := range online[1:] {
		if l := jobtags.Lacking(job, c.tags); len(l) < len(missing) {
			nearest, missing = c, l
		}
	}
	return fmt.Sprintf("No provisioner online has %s. Nearest: %s lacks %s.",
		strings.Join(onNone(job, online), " and "), nearest.name, strings.Join(missing, ", "))
}

// matching returns the candidates that may take a job with these tags.
func matching(job map[string]string, all []candidate) []candidate {
	return slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !jobtags.Matches(job, c.tags) })
}

// whyLeaving returns why daemons take no job if the servers of all of them are stopping, and "" otherwise.
func whyLeaving(able []candidate) string {
	var until time.Time
	for _, c := range able {
		if !c.leaves() {
			return ""
		}
		if c.until.After(until) {
			until = c.until
		}
	}
	at := until.UTC().Format("15:04:05 UTC")
	switch len(able) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("The provisioner %s takes no job: its server is stopping, and waits for the job that it runs until %s at most.",
			able[0].name, at)
	}
	return fmt.Sprintf("All %d matching provisioners take no job: their servers are stopping, and wait for the jobs that they run until %s at most.",
		len(able), at)
}

// onNone returns the job's tags that no daemon has. When each tag is on some daemon, it returns all of the job's own:
// no daemon has them together.
func onNone(job map[string]string, online []candidate) []string {
	var out []string
	for _, tag := range jobtags.Lacking(jobtags.Own(job), nil) {
		if !slices.ContainsFunc(online, func(c candidate) bool { k, v, _ := strings.Cut(tag, "="); return c.tags[k] == v }) {
			out = append(out, tag)
		}
	}
	if len(out) == 0 {
		return jobtags.Lacking(jobtags.Own(job), nil)
	}
	return out
}
