package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// LateStart is how late a scheduled start may still happen, after the server was down or the build was refused.
const LateStart = time.Hour

// Leads of announcements that templates do not set. If the period is short, its second half is announced.
const (
	dormancyLead = 24 * time.Hour
	deletionLead = 72 * time.Hour
)

// Consequence is one thing that happens to a workspace if nothing changes.
type Consequence struct {
	Action sdk.ScheduledAction
	At     time.Time // zero if it does not happen, and Because explains why
	// Transition and Reason are of the build to make; Transition is "" for a consequence without a build of its own.
	Transition sdk.Transition
	Reason     sdk.BuildReason
	// AnnounceAt is when the owner is told; zero for never.
	AnnounceAt time.Time
	// Because completes "Stops today at 18:00 because …".
	Because string

	verb, past string
	advice     string // a sentence about what the owner can do
	in         *time.Location
	look       time.Time // when the decision may change before At; zero for never
}

// Due reports whether the time has come.
func (c Consequence) Due(now time.Time) bool { return !c.At.IsZero() && !c.At.After(now) }

// Announced reports whether the owner is to be told by now.
func (c Consequence) Announced(now time.Time) bool {
	return !c.AnnounceAt.IsZero() && !c.AnnounceAt.After(now) && c.At.After(now)
}

// Sentence explains what will happen, and what the owner can do.
func (c Consequence) Sentence(now time.Time) string {
	if c.At.IsZero() {
		return fmt.Sprintf("%s because %s.", c.verb, c.Because)
	}
	text := fmt.Sprintf("%s now because %s.", c.verb, c.Because)
	if c.At.After(now) {
		text = fmt.Sprintf("%s %s because %s.", c.verb, when(c.At, now, c.in), c.Because)
	}
	if c.advice != "" {
		text += " " + c.advice
	}
	return text
}

// Past explains what happened at a time.
func (c Consequence) Past(at time.Time) string {
	return fmt.Sprintf("%s %s because %s.", c.past, on(at, c.in), c.Because)
}

// Consequences returns what happens to the workspace if nothing changes, the earliest first. While a build is active
// there is none.
func (f Facts) Consequences(now time.Time) []Consequence {
	b := f.Build
	if !b.Status.Ended() {
		return nil
	}
	in := f.location()
	var out []Consequence
	add := func(c *Consequence) {
		if c != nil {
			c.in = in
			out = append(out, *c)
		}
	}
	if f.Workspace.DormantAt != nil {
		add(f.dormantStop())
		add(f.deletion(in))
	} else {
		add(f.stop())
		add(f.cleanUp())
		add(f.stopAgain())
		add(f.start(now))
		add(f.dormancy(in))
	}
	slices.SortStableFunc(out, func(a, b Consequence) int {
		switch {
		case a.At.IsZero() != b.At.IsZero():
			if a.At.IsZero() {
				return 1
			}
			return -1
		default:
			return a.At.Compare(b.At)
		}
	})
	return out
}

// NextLook returns when to decide again: when the next consequence is due or is to be announced, and after a day at the
// latest.
func NextLook(consequences []Consequence, now time.Time) time.Time {
	next := now.Add(24 * time.Hour)
	for _, c := range consequences {
		for _, at := range []time.Time{c.AnnounceAt, c.At, c.look} {
			if at.After(now) && at.Before(next) {
				next = at
			}
		}
	}
	return next
}

// notBefore returns the later of t and the earliest time of a retry.
func (f Facts) notBefore(t time.Time) time.Time {
	if r := f.Workspace.RetryAt; r != nil && r.After(t) {
		return *r
	}
	return t
}

// stop is the end of a running workspace's time.
func (f Facts) stop() *Consequence {
	b := f.Build
	if !b.Running() || b.Deadline == nil {
		return nil
	}
	starts := f.startsInRun(nil)
	if starts.endless {
		return &Consequence{
			Action: sdk.ScheduledStop, Transition: sdk.TransitionStop, Reason: sdk.ReasonAutostop, look: starts.first,
			verb: "Does not stop automatically", Because: "it starts by its schedule before each stop, and may then run for " + duration(b.Bounds.TTL),
		}
	}
	f.Build.Deadline = &starts.deadline
	b.Deadline = &starts.deadline
	c := &Consequence{
		Action: sdk.ScheduledStop, At: f.notBefore(*b.Deadline), look: starts.first, Transition: sdk.TransitionStop,
		Reason: sdk.ReasonAutostop,
		verb:   "Stops", past: "Stopped", Because: f.whyStop(),
	}
	if f.Template.Notify > 0 {
		c.AnnounceAt = b.Deadline.Add(-f.Template.Notify)
	}
	return c
}

// whyStop completes "Stops … because".
func (f Facts) whyStop() string {
	b := f.Build
	if b.Bounds.Max != nil && !b.Deadline.Before(*b.Bounds.Max) {
		switch b.Bounds.MaxFrom {
		case MaxLifetime:
			return fmt.Sprintf("the template allows it to run for at most %s", duration(f.Template.MaxLifetime))
		case MaxRequirement:
			every := f.Template.AutostopDays.String()
			if f.Template.AutostopWeeks > 1 {
				every += fmt.Sprintf(" of every %d weeks", f.Template.AutostopWeeks)
			}
			return fmt.Sprintf("the template requires a stop when the owner's quiet hours begin (%s)", every)
		}
	}
	var why string
	switch b.Bounds.TTLFrom {
	case TTLTemplate:
		why = "the template's default is " + duration(b.Bounds.TTL)
	case TTLWorkspace:
		why = "its autostop is set to " + duration(b.Bounds.TTL)
	default:
		why = "it has a deadline"
	}
	if f.countsFromSchedule() {
		return why + ", counted from its scheduled start " + on(b.Deadline.Add(-b.Bounds.TTL), f.location())
	}
	if b.Extensions > 0 {
		why += "; extended " + times(b.Extensions)
	}
	if b.Bumped {
		why += "; postponed while in use"
	}
	return why
}

// cleanUp stops what a failed start left.
func (f Facts) cleanUp() *Consequence {
	if f.Template.FailureTTL == 0 || !f.Build.is(sdk.TransitionStart, sdk.JobFailed) {
		return nil
	}
	return &Consequence{
		Action: sdk.ScheduledStop, At: f.notBefore(f.Build.EndedAt.Add(f.Template.FailureTTL)),
		Transition: sdk.TransitionStop, Reason: sdk.ReasonAutostop,
		verb: "Stops", past: "Stopped",
		Because: fmt.Sprintf("its start failed and the template stops failed workspaces after %s",
			duration(f.Template.FailureTTL)),
	}
}

// stopAgain repeats an automatic stop that failed. A person sees a failed stop of their own.
func (f Facts) stopAgain() *Consequence {
	if f.Build.Reason != sdk.ReasonAutostop || !f.Build.is(sdk.TransitionStop, sdk.JobFailed) {
		return nil
	}
	return &Consequence{
		Action: sdk.ScheduledStop, At: f.notBefore(f.Build.EndedAt), Transition: sdk.TransitionStop,
		Reason: sdk.ReasonAutostop,
		verb:   "Stops again", past: "Stopped again", Because: "the last automatic stop failed",
	}
}

// start is the next start by schedule.
func (f Facts) start(now time.Time) *Consequence {
	if f.Workspace.Schedule == "" || !f.Build.is(sdk.TransitionStop, sdk.JobSucceeded) {
		return nil
	}
	c := &Consequence{
		Action: sdk.ScheduledStart, Transition: sdk.TransitionStart, Reason: sdk.ReasonAutostart, verb: "Starts",
		past: "Started",
	}
	never := func(why string) *Consequence {
		c.verb, c.Because = "Does not start automatically", why
		return c
	}
	schedule, err := ParseSchedule(f.Workspace.Schedule)
	switch {
	case err != nil:
		return never("its schedule is invalid")
	case f.Workspace.OwnerSuspended:
		return never("its owner is suspended")
	case !f.Template.AllowAutostart:
		return never("the template does not allow autostart")
	}
	at := schedule.NextOn(f.startsSince(now), f.Template.AutostartDays)
	if at.IsZero() {
		return never("the template allows autostart on " + f.Template.AutostartDays.String() + " only")
	}
	c.At, c.Because = f.notBefore(at), "of its autostart schedule"
	if f.Template.AutostartDays != EveryDay {
		c.Because += "; the template allows autostart on " + f.Template.AutostartDays.String() + " only"
	}
	return c
}

// dormancy follows a long time without use.
func (f Facts) dormancy(in *time.Location) *Consequence {
	if f.Template.Dormant == 0 {
		return nil
	}
	c := &Consequence{
		Action: sdk.ScheduledDormancy, At: f.Workspace.LastUsed.Add(f.Template.Dormant), verb: "Becomes dormant",
		past: "Became dormant", advice: "Use it to prevent that.",
		Because: fmt.Sprintf("it was last used %s and the template's limit is %s", on(f.Workspace.LastUsed, in),
			duration(f.Template.Dormant)),
	}
	if f.Build.Running() {
		c.Transition, c.Reason = sdk.TransitionStop, sdk.ReasonDormancy
	}
	c.AnnounceAt = c.At.Add(-min(dormancyLead, f.Template.Dormant/2))
	return c
}

// dormantStop stops what still runs of a dormant workspace.
func (f Facts) dormantStop() *Consequence {
	b := f.Build
	if b.Transition != sdk.TransitionStart && !b.is(sdk.TransitionStop, sdk.JobFailed) {
		return nil
	}
	return &Consequence{
		Action: sdk.ScheduledStop, At: f.notBefore(*f.Workspace.DormantAt), Transition: sdk.TransitionStop,
		Reason: sdk.ReasonDormancy,
		verb:   "Stops", past: "Stopped", Because: "of its dormancy",
	}
}

// deletion is the end of a dormant workspace.
func (f Facts) deletion(in *time.Location) *Consequence {
	at := DeletingAt(f.Workspace.DormantAt, f.Template.Delete)
	if at == nil {
		return nil
	}
	return &Consequence{
		Action: sdk.ScheduledDelete, At: f.notBefore(*at), Transition: sdk.TransitionDelete,
		Reason:     sdk.ReasonAutoDelete,
		AnnounceAt: at.Add(-min(deletionLead, f.Template.Delete/2)), verb: "Is deleted", past: "Deleted",
		advice: "Wake it to keep it.",
		Because: fmt.Sprintf("it became dormant %s and the template deletes dormant workspaces after %s",
			on(*f.Workspace.DormantAt, in), duration(f.Template.Delete)),
	}
}

// AfterDormancy says what follows if the workspace becomes dormant now; "" if it is kept.
func (f Facts) AfterDormancy(now time.Time) string {
	f.Workspace.DormantAt = &now
	c := f.deletion(f.location())
	if c == nil {
		return ""
	}
	c.in = f.location()
	return c.Sentence(now)
}

// DeletingAt returns when a workspace is deleted that is dormant since a time; nil for never.
func DeletingAt(dormant *time.Time, after time.Duration) *time.Time {
	if dormant == nil || after == 0 {
		return nil
	}
	at := dormant.Add(after)
	return &at
}
