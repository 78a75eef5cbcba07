package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestDesiredPrebuilds(t *testing.T) {
	t.Parallel()
	p := policy.Prebuilds{Instances: 1, Timezone: "Europe/Berlin", Schedule: []policy.PrebuildsInHour{
		{Cron: "* 8-17 * * 1-5", Instances: 5}, {Cron: "* 10-11 * * 6", Instances: 2},
	}}
	for at, want := range map[string]int{
		"2025-06-02T05:59:59Z": 1, // Monday 07:59 in Berlin
		"2025-06-02T06:00:00Z": 5,
		"2025-06-02T15:59:59Z": 5, // 17:59
		"2025-06-02T16:00:00Z": 1,
		"2025-12-01T06:30:00Z": 1, // winter: 07:30
		"2025-12-01T07:30:00Z": 5,
		"2025-06-07T08:30:00Z": 2, // Saturday 10:30
		"2025-06-08T08:30:00Z": 1, // Sunday
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Desired(now); got != want {
			t.Errorf("at %s: %d instances, want %d", at, got, want)
		}
	}
}

func TestReconcilePrebuilds(t *testing.T) {
	t.Parallel()
	now := time.Date(2025, 6, 2, 12, 0, 0, 0, time.UTC)
	later := now.Add(time.Minute)
	b := func(age time.Duration, transition sdk.Transition, status sdk.JobStatus, ready bool) policy.Prebuilt {
		return policy.Prebuilt{CreatedAt: now.Add(-age), Transition: transition, Status: status, Ready: ready}
	}
	at := func(after time.Duration) *time.Time { t := now.Add(after); return &t }
	start, remove := sdk.TransitionStart, sdk.TransitionDelete
	pool := func(instances int, edit func(*policy.Pool)) *policy.Pool {
		p := &policy.Pool{Prebuilds: policy.Prebuilds{Instances: instances}}
		if edit != nil {
			edit(p)
		}
		return p
	}
	for name, c := range map[string]struct {
		pool   *policy.Pool
		all    []policy.Prebuilt
		create int
		remove []int
	}{
		"empty":             {pool: pool(3, nil), create: 3},
		"a few at a time":   {pool: pool(100, nil), create: 10},
		"on its way":        {pool: pool(2, nil), all: []policy.Prebuilt{b(1, start, sdk.JobPending, false), b(1, start, sdk.JobRunning, false)}},
		"enough":            {pool: pool(1, nil), all: []policy.Prebuilt{b(1, start, sdk.JobSucceeded, true)}},
		"failed":            {pool: pool(1, func(p *policy.Pool) { p.Failures, p.FailedAt = 1, now }), all: []policy.Prebuilt{b(1, start, sdk.JobFailed, false)}, remove: []int{0}},
		"canceled, stopped": {pool: pool(0, nil), all: []policy.Prebuilt{b(1, start, sdk.JobCanceled, false), b(1, sdk.TransitionStop, sdk.JobSucceeded, false)}, remove: []int{0, 1}},
		"being deleted":     {pool: pool(0, nil), all: []policy.Prebuilt{b(1, remove, sdk.JobRunning, false)}},
		"deletion failed":   {pool: pool(0, nil), all: []policy.Prebuilt{b(1, remove, sdk.JobFailed, false), {Transition: remove, Status: sdk.JobFailed, RetryAt: &later}}, remove: []int{0}},
		"too many": {pool: pool(1, nil), remove: []int{1, 0},
			all: []policy.Prebuilt{b(3*time.Hour, start, sdk.JobSucceeded, true), b(time.Hour, start, sdk.JobSucceeded, false), b(2*time.Hour, start, sdk.JobSucceeded, true)}},
		"expired": {pool: pool(2, func(p *policy.Pool) { p.TTLSeconds = 3600 }), create: 1, remove: []int{0},
			all: []policy.Prebuilt{b(2*time.Hour, start, sdk.JobSucceeded, true), b(time.Minute, start, sdk.JobSucceeded, true)}},
		"invalidated": {pool: pool(2, func(p *policy.Pool) { p.InvalidatedAt = at(-time.Hour) }), create: 1, remove: []int{0},
			all: []policy.Prebuilt{b(time.Hour, start, sdk.JobSucceeded, true), b(time.Minute, start, sdk.JobSucceeded, true)}},
		"invalidated, then expired": {pool: pool(2, func(p *policy.Pool) { p.TTLSeconds, p.InvalidatedAt = 3600, at(-3*time.Hour) }), create: 1, remove: []int{0},
			all: []policy.Prebuilt{b(2*time.Hour, start, sdk.JobSucceeded, true), b(time.Minute, start, sdk.JobSucceeded, true)}},
		"invalidated before they expire": {pool: pool(1, func(p *policy.Pool) { p.TTLSeconds, p.InvalidatedAt = 86400, at(0) }), create: 1, remove: []int{0},
			all: []policy.Prebuilt{b(time.Minute, start, sdk.JobSucceeded, true)}},
		"invalidated while it starts": {pool: pool(1, func(p *policy.Pool) { p.InvalidatedAt = at(0) }), all: []policy.Prebuilt{b(time.Minute, start, sdk.JobRunning, false)}},
		"another version's":           {all: []policy.Prebuilt{b(1, start, sdk.JobSucceeded, true), b(1, start, sdk.JobRunning, false)}, remove: []int{0}},
		"one tries again":             {pool: pool(5, func(p *policy.Pool) { p.Failures, p.FailedAt = 2, now.Add(-2*time.Minute) }), create: 1},
		"one is tried":                {pool: pool(5, func(p *policy.Pool) { p.Failures, p.FailedAt = 2, now.Add(-time.Hour) }), all: []policy.Prebuilt{b(1, start, sdk.JobRunning, false)}},
		"too early":                   {pool: pool(5, func(p *policy.Pool) { p.Failures, p.FailedAt = 2, now.Add(-119*time.Second) })},
		"given up":                    {pool: pool(5, func(p *policy.Pool) { p.Failures, p.FailedAt = 3, now.Add(-24*time.Hour) })},
		"cannot be queued":            {pool: pool(5, func(p *policy.Pool) { p.ProblemAt = &now })},
	} {
		create, remove := c.pool.Reconcile(c.all, now)
		if create != c.create {
			t.Errorf("%s: creates %d, want %d", name, create, c.create)
		}
		if diff := cmp.Diff(c.remove, remove); diff != "" {
			t.Errorf("%s: deletes (-want +got):\n%s", name, diff)
		}
	}
	if got := pool(1, func(p *policy.Pool) { p.Failures = 3 }).Explain("", now); !strings.Contains(got, "coder prebuilds resume") {
		t.Errorf("a pool that was given up is explained with %q", got)
	}
}
