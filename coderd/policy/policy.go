// Package policy decides what happens to a workspace without anyone asking: when it starts, stops, becomes dormant and
// is deleted, by the rules of its template, the quiet hours of its owner and how it is used. Every decision comes with
// a sentence that explains it.
//
// The package owns the rules only. It is made of pure functions of Facts and a time: it must not know the database,
// HTTP or how builds are made. coderd/workspaces reads the facts, acts on the decisions and records them.
package policy

import (
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// MinTTL is the shortest time to live of a workspace.
const MinTTL = time.Minute

// Template is what a template asks of its workspaces. In durations 0 means that the rule does not exist.
type Template struct {
	DefaultTTL  time.Duration // after a start, for workspaces without their own
	MaxLifetime time.Duration // after a start, whatever the workspace sets
	Notify      time.Duration // how long before a stop it is announced
	FailureTTL  time.Duration // after a failed start, until the workspace is stopped
	Dormant     time.Duration // without use, until the workspace becomes dormant
	Delete      time.Duration // dormant, until the workspace is deleted

	AutostartDays  Days // on which schedules start workspaces
	AutostopDays   Days // on which running workspaces must stop at their owner's quiet hours
	AutostopWeeks  int  // every how many weeks; at least 1
	AllowAutostart bool // whether users may set a schedule
	AllowAutostop  bool // whether users may set their own time to live
}

// Workspace is what its owner and its use add.
type Workspace struct {
	Schedule       string        // autostart; "" for none
	TTL            time.Duration // 0 for none
	LastUsed       time.Time
	DormantAt      *time.Time
	OwnerSuspended bool
	// RetryAt is the earliest time of the next automatic build after others failed; nil for none.
	RetryAt *time.Time
}

// Build is the latest build.
type Build struct {
	Transition sdk.Transition
	Reason     sdk.BuildReason
	Status     sdk.JobStatus
	EndedAt    time.Time // zero while the build is active
	Deadline   *time.Time
	Bounds     Bounds
	// RulesAt is the Facts.RulesAt with which Bounds were computed; nil if they never were.
	RulesAt    *time.Time
	Extensions int  // how often a user changed the deadline
	Bumped     bool // whether use postponed it
	// ExtendedAt is when a user last set the deadline; nil for never.
	ExtendedAt *time.Time
	// StartsSince is, for an automatic stop, the time after which scheduled starts are still due. Nil means its end.
	StartsSince *time.Time
}

// Facts are everything that decisions depend on, besides the time.
type Facts struct {
	Template  Template
	Quiet     QuietHours // of the owner
	Workspace Workspace
	Build     Build
	RulesAt   time.Time // when the rules that bound a running workspace last changed
}

func (b Build) is(t sdk.Transition, s sdk.JobStatus) bool { return b.Transition == t && b.Status == s }

// Running reports whether the build started the workspace.
func (b Build) Running() bool { return b.is(sdk.TransitionStart, sdk.JobSucceeded) }

// EffectiveTTL returns how long after a start the workspace stops, 0 for never, and whose setting that is.
func EffectiveTTL(t Template, ttl time.Duration) (time.Duration, TTLSource) {
	switch {
	case !t.AllowAutostop && t.DefaultTTL > 0, ttl > 0 && ttl == t.DefaultTTL:
		return t.DefaultTTL, TTLTemplate
	case t.AllowAutostop && ttl > 0:
		return ttl, TTLWorkspace
	}
	return 0, TTLNone
}

// location returns the time zone for sentences: the one that the owner chose for their quiet hours or for the schedule.
func (f Facts) location() *time.Location {
	if !f.Quiet.Own && f.Workspace.Schedule != "" {
		if s, err := ParseSchedule(f.Workspace.Schedule); err == nil {
			return s.location
		}
	}
	return f.Quiet.location
}
