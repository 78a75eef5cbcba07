package policy

import "time"

// Scheduled starts and stops may overlap. A scheduled start that comes while the workspace runs counts as a start: from
// then on the workspace runs for its time to live again, within its maximum. One that comes while an automatic stop is
// made, or that the maximum cut short, follows the stop.

// maxOverlap is how many scheduled starts of one run are looked at: more than a week of a daily schedule, after which
// it repeats.
const maxOverlap = 16

// overlap is what the scheduled starts that come during a run do to its deadline.
type overlap struct {
	deadline time.Time
	first    time.Time // the first start that moves the deadline; zero for none
	endless  bool      // each deadline comes after another start
}

// startsInRun returns how the scheduled starts until a time move the deadline of a running workspace that has one. Nil
// means all that follow.
func (f Facts) startsInRun(until *time.Time) overlap {
	b := f.Build
	o := overlap{deadline: *b.Deadline}
	schedule, ok := f.autostart()
	if !ok || b.Bounds.TTL == 0 {
		return o
	}
	for range maxOverlap {
		next := schedule.NextOn(later(f.runSince(), o.deadline.Add(-b.Bounds.TTL)), f.Template.AutostartDays)
		if next.IsZero() || next.After(o.deadline) || until != nil && next.After(*until) {
			return o
		}
		end := *b.Bounds.cap(next.Add(b.Bounds.TTL))
		if !end.After(o.deadline) {
			return o
		}
		if o.deadline = end; o.first.IsZero() {
			o.first = next
		}
	}
	o.endless = until == nil
	return o
}

// Counted returns the deadline of a running workspace if a scheduled start has moved it by now. It must be stored
// before anything else is decided.
func (f Facts) Counted(now time.Time) (deadline *time.Time, changed bool) {
	if !f.Build.Running() || f.Build.Deadline == nil {
		return nil, false
	}
	o := f.startsInRun(&now)
	return &o.deadline, !o.first.IsZero()
}

// WillStop returns when a running workspace with a deadline stops, as far as is known; zero for not before its next
// scheduled starts.
func (f Facts) WillStop() time.Time {
	o := f.startsInRun(nil)
	if o.endless {
		return time.Time{}
	}
	return o.deadline
}

// countsFromSchedule reports whether a scheduled start gave the deadline.
func (f Facts) countsFromSchedule() bool {
	b := f.Build
	schedule, ok := f.autostart()
	if !ok || b.Bounds.TTL == 0 {
		return false
	}
	at := b.Deadline.Add(-b.Bounds.TTL)
	return at.After(f.runSince()) && schedule.NextOn(at.Add(-time.Nanosecond), f.Template.AutostartDays).Equal(at)
}

// StartsSince returns the Build.StartsSince of an automatic stop that is made for the present build; nil if no start
// follows such a stop.
func (f Facts) StartsSince() *time.Time {
	b := f.Build
	if !b.Running() {
		return b.StartsSince // it repeats a stop
	}
	if b.Deadline == nil {
		return nil
	}
	const before = time.Microsecond // the database's precision
	since := b.Deadline.Add(-before)
	schedule, ok := f.autostart()
	if ok && b.Bounds.Max != nil && !b.Deadline.Before(*b.Bounds.Max) {
		lost := LateStart
		if b.Bounds.TTL > 0 {
			lost = min(lost, b.Bounds.TTL)
		}
		cut := schedule.NextOn(later(f.runSince(), b.Deadline.Add(-lost)), f.Template.AutostartDays)
		if !cut.IsZero() && cut.Before(*b.Deadline) {
			since = cut.Add(-before)
		}
	}
	return &since
}

// startsSince returns the time after which scheduled starts are still due for a stopped workspace.
func (f Facts) startsSince(now time.Time) time.Time {
	late := now.Add(-LateStart)
	if s := f.Build.StartsSince; s != nil && s.Before(f.Build.EndedAt) && f.Build.EndedAt.After(late) {
		return *s
	}
	since := later(late, f.Build.EndedAt)
	if r := f.Workspace.RetryAt; r != nil {
		since = later(since, r.Add(-LateStart))
	}
	return since
}

// runSince returns the time from which scheduled starts count for a running workspace: since it started, or since a
// user set its deadline.
func (f Facts) runSince() time.Time {
	if f.Build.ExtendedAt == nil {
		return f.Build.EndedAt
	}
	return later(f.Build.EndedAt, *f.Build.ExtendedAt)
}

// autostart returns the schedule, if it may start the workspace.
func (f Facts) autostart() (Schedule, bool) {
	if f.Workspace.Schedule == "" || f.Workspace.OwnerSuspended || f.Workspace.DormantAt != nil ||
		!f.Template.AllowAutostart {
		return Schedule{}, false
	}
	s, err := ParseSchedule(f.Workspace.Schedule)
	return s, err == nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
