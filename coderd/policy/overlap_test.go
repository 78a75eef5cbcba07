package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// simulated is a workspace in virtual time, which a scheduler looks at whenever policy says.
type simulated struct {
	policy.Facts
	t        *testing.T
	now      time.Time
	takes    time.Duration // a build
	happened []string
}

// do makes a build.
func (s *simulated) do(transition sdk.Transition, reason sdk.BuildReason, since *time.Time) {
	s.happened = append(s.happened, string(transition)+" "+s.now.UTC().Format("Mon 15:04:05"))
	s.now = s.now.Add(s.takes)
	s.Build = policy.Build{Transition: transition, Reason: reason, Status: sdk.JobSucceeded, EndedAt: s.now, StartsSince: since}
	if transition == sdk.TransitionStart {
		s.Build.Bounds, s.Build.Deadline = s.Started(s.now)
	}
}

// look does what is due, as the scheduler does, and returns when to look again.
func (s *simulated) look() time.Time {
	if deadline, changed := s.Counted(s.now); changed {
		s.Build.Deadline = deadline
	}
	next := s.Consequences(s.now)
	if len(next) == 0 || !next[0].Due(s.now) {
		return policy.NextLook(next, s.now)
	}
	var since *time.Time
	if next[0].Reason == sdk.ReasonAutostop {
		since = s.StartsSince()
	}
	s.do(next[0].Transition, next[0].Reason, since)
	return s.now
}

// until looks until a time.
func (s *simulated) until(end time.Time) {
	s.t.Helper()
	for looks := 0; ; looks++ {
		next := s.look()
		if next.After(end) {
			s.now = end
			return
		}
		if looks > 1000 {
			s.t.Fatalf("looks all the time: %v", s.happened)
		}
		s.now = next
	}
}

// weeks are what is set up and what a user does in them, and which builds happen.
var weeks = []struct {
	name     string
	template policy.Template
	ttl      time.Duration
	schedule string
	quiet    string
	start    string // by hand
	edit     func(*simulated)
	until    string
	want     []string
}{
	{
		name: "the usual day", ttl: 8 * time.Hour, start: "2026-11-23T08:30:00Z", until: "2026-11-25T00:00:00Z",
		want: []string{"start Mon 08:30:00", "stop Mon 16:31:00", "start Tue 08:00:00", "stop Tue 16:01:00"},
	},
	{
		name: "the deadline of a night's work lies after the schedule", ttl: 8 * time.Hour, start: "2026-11-23T00:10:00Z", until: "2026-11-24T00:00:00Z",
		want: []string{"start Mon 00:10:00", "stop Mon 16:00:00"},
	},
	{
		name: "the deadline is the scheduled time", ttl: 8 * time.Hour, start: "2026-11-22T23:59:00Z", until: "2026-11-24T00:00:00Z",
		want: []string{"start Sun 23:59:00", "stop Mon 16:00:00"},
	},
	{
		name: "the schedule comes while the stop is made", ttl: 8 * time.Hour, start: "2026-11-22T23:58:30Z", until: "2026-11-24T00:00:00Z",
		want: []string{"start Sun 23:58:30", "stop Mon 07:59:30", "start Mon 08:00:30", "stop Mon 16:01:30"},
	},
	{
		name: "a day's time to live, on weekdays", ttl: 24 * time.Hour, schedule: "0 8 * * 1-5", start: "2026-11-23T08:30:00Z", until: "2026-11-30T12:00:00Z",
		want: []string{"start Mon 08:30:00", "stop Sat 08:00:00", "start Mon 08:00:00"},
	},
	{
		name: "a day's time to live, every day", ttl: 24 * time.Hour, start: "2026-11-23T08:30:00Z", until: "2026-12-30T12:00:00Z",
		want: []string{"start Mon 08:30:00"},
	},
	{
		name: "the maximum is a day and a little", template: policy.Template{MaxLifetime: 24 * time.Hour}, ttl: 0, start: "2026-11-23T08:00:00Z", until: "2026-11-26T00:00:00Z",
		want: []string{"start Mon 08:00:00", "stop Tue 08:01:00", "start Tue 08:02:00", "stop Wed 08:03:00", "start Wed 08:04:00"},
	},
	{
		name: "the maximum cuts the time to live after the schedule", template: policy.Template{MaxLifetime: 9 * time.Hour}, ttl: 9 * time.Hour, start: "2026-11-22T23:29:00Z",
		until: "2026-11-24T00:00:00Z", want: []string{"start Sun 23:29:00", "stop Mon 08:30:00", "start Mon 08:31:00", "stop Mon 17:32:00"},
	},
	{
		name: "the maximum comes long after the schedule", template: policy.Template{MaxLifetime: 12 * time.Hour}, ttl: 9 * time.Hour, start: "2026-11-22T23:29:00Z",
		until: "2026-11-24T00:00:00Z", want: []string{"start Sun 23:29:00", "stop Mon 11:30:00"},
	},
	{
		name: "quiet hours after the schedule", template: policy.Template{AutostopDays: policy.EveryDay}, quiet: "CRON_TZ=UTC 20 8 * * *", ttl: 4 * time.Hour,
		start: "2026-11-23T07:00:00Z", until: "2026-11-24T00:00:00Z",
		want: []string{"start Mon 07:00:00", "stop Mon 08:20:00", "start Mon 08:21:00", "stop Mon 12:22:00"},
	},
	{
		name: "a short time to live is served in full", ttl: 30 * time.Minute, start: "2026-11-22T08:00:00Z", until: "2026-11-24T00:00:00Z",
		want: []string{"start Sun 08:00:00", "stop Sun 08:31:00", "start Mon 08:00:00", "stop Mon 08:31:00"},
	},
	{
		name: "a user ends the day early", ttl: 8 * time.Hour, start: "2026-11-23T00:10:00Z", until: "2026-11-24T00:00:00Z",
		edit: func(s *simulated) {
			s.until(at(s.t, "2026-11-23T08:10:00Z"))
			set, deadline := s.now, s.now.Add(20*time.Minute)
			s.Build.ExtendedAt, s.Build.Deadline = &set, &deadline
		},
		want: []string{"start Mon 00:10:00", "stop Mon 08:30:00"},
	},
	{
		name: "a user extends the night past the schedule", ttl: 8 * time.Hour, start: "2026-11-22T22:00:00Z", until: "2026-11-24T00:00:00Z",
		edit: func(s *simulated) {
			s.until(at(s.t, "2026-11-23T05:00:00Z"))
			set, deadline := s.now, at(s.t, "2026-11-23T08:05:00Z")
			s.Build.ExtendedAt, s.Build.Deadline = &set, &deadline
		},
		want: []string{"start Sun 22:00:00", "stop Mon 16:00:00"},
	},
	{
		name: "use postpones the stop past the schedule", ttl: 8 * time.Hour, start: "2026-11-22T22:00:00Z", until: "2026-11-24T00:00:00Z",
		edit: func(s *simulated) {
			s.until(at(s.t, "2026-11-23T06:00:00Z"))
			deadline := at(s.t, "2026-11-23T08:30:00Z")
			s.Build.Bumped, s.Build.Deadline = true, &deadline
		},
		want: []string{"start Sun 22:00:00", "stop Mon 16:00:00"},
	},
	{
		name: "no server ran at the deadline", ttl: 8 * time.Hour, start: "2026-11-22T23:50:00Z", until: "2026-11-24T00:00:00Z",
		edit: func(s *simulated) { s.now = at(s.t, "2026-11-23T08:10:00Z") },
		want: []string{"start Sun 23:50:00", "stop Mon 08:10:00", "start Mon 08:11:00", "stop Mon 16:12:00"},
	},
	{
		name: "a user stops it just before the schedule", ttl: 8 * time.Hour, start: "2026-11-23T00:10:00Z", until: "2026-11-24T00:00:00Z",
		edit: func(s *simulated) {
			s.now = at(s.t, "2026-11-23T07:59:30Z")
			s.do(sdk.TransitionStop, sdk.ReasonCLI, nil)
		},
		want: []string{"start Mon 00:10:00", "stop Mon 07:59:30"},
	},
}

// TestScheduledStartsAreNotCutShort checks weeks in which stops and scheduled starts meet. The schedule comes at 8:00.
func TestScheduledStartsAreNotCutShort(t *testing.T) {
	t.Parallel()
	for _, tt := range weeks {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := tt.template
			p.AllowAutostart, p.AllowAutostop, p.AutostartDays, p.AutostopWeeks = true, true, policy.EveryDay, 1
			s := &simulated{t: t, now: at(t, tt.start), takes: time.Minute, Facts: policy.Facts{Template: p, Quiet: quiet(t, policy.DefaultQuietHours)}}
			s.Workspace = policy.Workspace{Schedule: "0 8 * * *", TTL: tt.ttl}
			if tt.schedule != "" {
				s.Workspace.Schedule = tt.schedule
			}
			if tt.quiet != "" {
				s.Quiet = quiet(t, tt.quiet)
			}
			s.do(sdk.TransitionStart, sdk.ReasonCLI, nil)
			if tt.edit != nil {
				tt.edit(s)
			}
			s.until(at(t, tt.until))
			if diff := cmp.Diff(tt.want, s.happened); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOverlapIsExplained checks that what a scheduled start will do to a deadline is told before it comes, and that a stop is not announced that
// will not happen.
func TestOverlapIsExplained(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-23T07:45:00Z")
	deadline := at(t, "2026-11-23T08:10:00Z")
	f := policy.Facts{
		Template:  policy.Template{AllowAutostart: true, AllowAutostop: true, AutostartDays: policy.EveryDay, AutostopWeeks: 1, Notify: 30 * time.Minute},
		Quiet:     quiet(t, policy.DefaultQuietHours),
		Workspace: policy.Workspace{Schedule: "0 8 * * *"},
		Build: policy.Build{
			Transition: sdk.TransitionStart, Status: sdk.JobSucceeded, EndedAt: now.Add(-7 * time.Hour), Deadline: &deadline,
			Bounds: policy.Bounds{TTL: 8 * time.Hour, TTLFrom: policy.TTLWorkspace},
		},
	}
	explain := func() string {
		t.Helper()
		cs := f.Consequences(now)
		if len(cs) != 1 || cs[0].Announced(now) {
			t.Fatalf("got %+v", cs)
		}
		return cs[0].Sentence(now)
	}
	want := "Stops today at 16:00 UTC because its autostop is set to 8 h, counted from its scheduled start on Mon 23 Nov 2026 at 08:00 UTC."
	if got := explain(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	f.Build.Bounds.TTL = 24 * time.Hour
	want = "Does not stop automatically because it starts by its schedule before each stop, and may then run for 24 h."
	if got := explain(); got != want || !f.WillStop().IsZero() {
		t.Errorf("got %q, want %q", got, want)
	}
}
