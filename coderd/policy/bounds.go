package policy

import "time"

// TTLSource names whose time to live gave a deadline.
type TTLSource string

// MaxSource names the rule that gave a maximum deadline.
type MaxSource string

const (
	TTLNone      TTLSource = ""
	TTLTemplate  TTLSource = "template"
	TTLWorkspace TTLSource = "workspace"

	MaxNone        MaxSource = ""
	MaxLifetime    MaxSource = "lifetime"
	MaxRequirement MaxSource = "requirement"
)

// leeway is how long before a required stop a workspace may start without being stopped by it: the next required stop
// counts.
const leeway = time.Hour

// minNotice is the least time that a new rule leaves to a workspace that runs already.
const minNotice = 10 * time.Minute

// Bounds limit how long a running workspace runs.
type Bounds struct {
	TTL     time.Duration // the time to live that the deadline was computed with; 0 for none
	TTLFrom TTLSource
	Max     *time.Time // the latest deadline; nil for none
	MaxFrom MaxSource
}

// Started returns the bounds of a workspace that started at a time, and its deadline, nil for none.
func (f Facts) Started(at time.Time) (Bounds, *time.Time) {
	var b Bounds
	b.TTL, b.TTLFrom = EffectiveTTL(f.Template, f.Workspace.TTL)
	b.Max, b.MaxFrom = f.max(at, at)
	if b.TTL == 0 {
		return b, b.Max
	}
	return b, b.cap(at.Add(b.TTL))
}

// cap returns the deadline, or the maximum if that comes first.
func (b Bounds) cap(deadline time.Time) *time.Time {
	if b.Max != nil && b.Max.Before(deadline) {
		return b.Max
	}
	return &deadline
}

// max returns the latest deadline of a workspace that started at a time, under rules that exist since another.
func (f Facts) max(started, since time.Time) (*time.Time, MaxSource) {
	var at *time.Time
	from := MaxNone
	if f.Template.MaxLifetime > 0 {
		end := started.Add(f.Template.MaxLifetime)
		if notice := since.Add(max(f.Template.Notify, minNotice)); since.After(started) && end.Before(notice) {
			end = notice
		}
		at, from = &end, MaxLifetime
	}
	if next := f.Quiet.required(since.Add(leeway), f.Template.AutostopDays, f.Template.AutostopWeeks); !next.IsZero() &&
		(at == nil || next.Before(*at)) {
		at, from = &next, MaxRequirement
	}
	return at, from
}

// Rebound returns new bounds and a new deadline for a running workspace if the rules have changed since its bounds were
// computed. A new rule never stops a workspace before it could be announced.
func (f Facts) Rebound(now time.Time) (b Bounds, deadline *time.Time, changed bool) {
	if !f.Build.Running() || f.Build.RulesAt != nil && f.Build.RulesAt.Equal(f.RulesAt) {
		return Bounds{}, nil, false
	}
	b, deadline = f.Build.Bounds, f.Build.Deadline
	if f.Build.RulesAt == nil && deadline != nil && b.TTL == 0 { // a server of an earlier version started it
		b.TTL, b.TTLFrom = EffectiveTTL(f.Template, f.Workspace.TTL)
	}
	old := b.Max
	b.Max, b.MaxFrom = f.max(f.Build.EndedAt, now)
	if old != nil && deadline != nil && deadline.Equal(*old) { // the old maximum gave the deadline
		if end := f.Build.EndedAt.Add(b.TTL); b.TTL > 0 && end.After(now) {
			deadline = &end
		} else if b.TTL == 0 {
			deadline = nil
		}
	}
	if deadline == nil {
		return b, b.Max, true
	}
	return b, b.cap(*deadline), true
}
