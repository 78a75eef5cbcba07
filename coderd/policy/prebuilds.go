package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxPrebuildFailures is how many prebuilt workspaces of a preset may fail in a row before the server stops making
// more.
const maxPrebuildFailures = 3

// maxPrebuildSteps bounds how many prebuilt workspaces of a template are created at a time, so that one template does
// not fill the queue.
const maxPrebuildSteps = 10

// Prebuilds are what a preset asks for. Its JSON form is stored with the preset.
type Prebuilds struct {
	Instances  int               `json:"instances"`
	TTLSeconds int64             `json:"ttl_seconds,omitempty"` // 0: they do not expire
	Timezone   string            `json:"timezone,omitempty"`    // of the schedule
	Schedule   []PrebuildsInHour `json:"schedule,omitempty"`
}

// PrebuildsInHour is how many instances there are in the hours of a cron expression, "* HOUR DAY MONTH WEEKDAY".
type PrebuildsInHour struct {
	Cron      string `json:"cron"`
	Instances int    `json:"instances"`
}

// Desired returns how many workspaces are to be ready at a time.
func (p Prebuilds) Desired(now time.Time) int {
	zone, err := time.LoadLocation(p.Timezone)
	if err != nil { // imports refuse it, but the zones of this host may differ from the provisioner's
		return p.Instances
	}
	minute := now.In(zone).Truncate(time.Minute)
	for _, s := range p.Schedule {
		hours, err := cron.ParseStandard(s.Cron)
		if err == nil && hours.Next(minute.Add(-time.Second)).Equal(minute) {
			return s.Instances
		}
	}
	return p.Instances
}

// Pool is a preset with what the server knows about its prebuilt workspaces.
type Pool struct {
	Prebuilds
	// Failures is how many failed since one did not, and FailedAt when the last did.
	Failures int
	FailedAt time.Time
	// ProblemAt is when one could not even be queued; nil if the last one could.
	ProblemAt *time.Time
	// InvalidatedAt is when those that existed were declared to be out of date; nil if they never were.
	InvalidatedAt *time.Time
}

// GoodAfter returns the time after which workspaces were created that have not expired and are not out of date; nil if
// all are good.
func (p Pool) GoodAfter(now time.Time) *time.Time {
	if p.TTLSeconds <= 0 {
		return p.InvalidatedAt
	}
	at := now.Add(-time.Duration(p.TTLSeconds) * time.Second)
	if p.InvalidatedAt != nil && p.InvalidatedAt.After(at) {
		return p.InvalidatedAt
	}
	return &at
}

// Hold returns until when no more workspaces are created because the last ones failed, zero if nothing holds them. If
// ever is false, only a new version of the template or an administrator ends it.
func (p Pool) Hold() (until time.Time, ever bool) {
	if p.Failures >= maxPrebuildFailures {
		return time.Time{}, false
	}
	if p.Failures > 0 {
		until = p.FailedAt.Add(time.Minute << (p.Failures - 1))
	}
	if p.ProblemAt != nil && p.ProblemAt.Add(5*time.Minute).After(until) {
		until = p.ProblemAt.Add(5 * time.Minute)
	}
	return until, true
}

// Explain returns a sentence about what keeps the pool from having the desired workspaces, or "". problem is what
// ProblemAt is about.
func (p Pool) Explain(problem string, now time.Time) string {
	until, ever := p.Hold()
	switch {
	case !ever:
		return fmt.Sprintf("The last %d prebuilt workspaces failed. Push a fixed version of the template, or try again with: coder prebuilds resume", p.Failures)
	case p.ProblemAt != nil:
		return problem
	case until.After(now):
		return "The last prebuilt workspace failed. The next one is created at " + until.UTC().Format("15:04 MST") + "."
	}
	return ""
}

// Prebuilt is a prebuilt workspace that no user has claimed.
type Prebuilt struct {
	CreatedAt  time.Time
	Transition sdk.Transition // of the latest build
	Status     sdk.JobStatus  // of the latest build
	Ready      bool
	RetryAt    *time.Time // the earliest time of the next build after others failed; nil for none
}

func (b Prebuilt) running() bool {
	return b.Transition == sdk.TransitionStart && b.Status == sdk.JobSucceeded
}

// deletable reports whether a build that deletes the workspace can be made now.
func (b Prebuilt) deletable(now time.Time) bool {
	return b.Status.Ended() && (b.RetryAt == nil || !b.RetryAt.After(now))
}

// Reconcile decides how many workspaces to create for a pool and which of its workspaces to delete, by their index:
// those that failed, have expired, or are too many. Nil stands for a preset that no longer has prebuilt workspaces.
func (p *Pool) Reconcile(all []Prebuilt, now time.Time) (create int, remove []int) {
	desired := 0
	var after *time.Time
	if p != nil {
		desired, after = p.Desired(now), p.GoodAfter(now)
	}
	var good []int
	for i, b := range all {
		switch {
		case b.Transition == sdk.TransitionStart && !b.Status.Ended():
			good = append(good, i)
		case b.running() && (after == nil || b.CreatedAt.After(*after)):
			good = append(good, i)
		case b.deletable(now):
			remove = append(remove, i)
		}
	}
	if excess := len(good) - desired; excess > 0 {
		// Those that are not ready go first, then the oldest.
		slices.SortStableFunc(good, func(a, b int) int {
			if all[a].Ready != all[b].Ready {
				return map[bool]int{false: -1, true: 1}[all[a].Ready]
			}
			return cmp.Or(all[a].CreatedAt.Compare(all[b].CreatedAt), cmp.Compare(a, b))
		})
		for _, i := range good {
			if excess > 0 && all[i].deletable(now) {
				remove = append(remove, i)
				excess--
			}
		}
	}
	if missing := desired - len(good); missing > 0 {
		if until, ever := p.Hold(); ever && !until.After(now) {
			create = min(missing, maxPrebuildSteps)
			if p.Failures > 0 {
				create = 1 // one is enough to see whether it still fails
				if slices.ContainsFunc(all, func(b Prebuilt) bool { return b.Transition == sdk.TransitionStart && !b.Status.Ended() }) {
					create = 0
				}
			}
		}
	}
	return create, remove
}
