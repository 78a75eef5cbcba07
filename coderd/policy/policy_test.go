package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	got, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func quiet(t testing.TB, text string) policy.QuietHours {
	t.Helper()
	q, err := policy.ParseQuietHours(text)
	if err != nil {
		t.Fatal(err)
	}
	q.Own = true
	return q
}

func days(t testing.TB, names ...string) policy.Days {
	t.Helper()
	d, err := policy.ParseDays("days", names)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestStarted checks deadlines and maximum deadlines of starts, with Berlin's clock turned on 29 March and 25 October 2026.
func TestStarted(t *testing.T) {
	t.Parallel()
	open := policy.Template{AllowAutostart: true, AllowAutostop: true, AutostartDays: policy.EveryDay, AutostopWeeks: 1}
	for _, tt := range []struct {
		name     string
		template func(*policy.Template)
		ttl      time.Duration
		quiet    string
		start    string
		deadline string // "": none
		max      string
		from     policy.MaxSource
	}{
		{name: "nothing set", start: "2026-11-23T08:00:00Z"},
		{name: "own time to live", ttl: 8 * time.Hour, start: "2026-11-23T08:00:00Z", deadline: "2026-11-23T16:00:00Z"},
		{name: "own one is not allowed", template: func(p *policy.Template) { p.AllowAutostop, p.DefaultTTL = false, time.Hour }, ttl: 8 * time.Hour,
			start: "2026-11-23T08:00:00Z", deadline: "2026-11-23T09:00:00Z"},
		{name: "the user turned it off", template: func(p *policy.Template) { p.DefaultTTL = time.Hour }, start: "2026-11-23T08:00:00Z"},
		{name: "maximum lifetime alone", template: func(p *policy.Template) { p.MaxLifetime = 24 * time.Hour }, start: "2026-11-23T08:00:00Z",
			deadline: "2026-11-24T08:00:00Z", max: "2026-11-24T08:00:00Z", from: policy.MaxLifetime},
		{name: "maximum lifetime after the time to live", template: func(p *policy.Template) { p.MaxLifetime = 24 * time.Hour }, ttl: time.Hour, start: "2026-11-23T08:00:00Z",
			deadline: "2026-11-23T09:00:00Z", max: "2026-11-24T08:00:00Z", from: policy.MaxLifetime},
		{name: "lowered maximum before the time to live", template: func(p *policy.Template) { p.MaxLifetime = time.Hour }, ttl: 8 * time.Hour, start: "2026-11-23T08:00:00Z",
			deadline: "2026-11-23T09:00:00Z", max: "2026-11-23T09:00:00Z", from: policy.MaxLifetime},
		{name: "required on Saturday", template: func(p *policy.Template) { p.AutostopDays = days(t, "saturday") }, quiet: "CRON_TZ=Europe/Berlin 0 22 * * *",
			start: "2026-11-23T08:00:00Z", deadline: "2026-11-28T21:00:00Z", max: "2026-11-28T21:00:00Z", from: policy.MaxRequirement},
		{name: "lifetime ends before the requirement", template: func(p *policy.Template) { p.AutostopDays, p.MaxLifetime = days(t, "saturday"), time.Hour }, quiet: "CRON_TZ=Europe/Berlin 0 22 * * *",
			start: "2026-11-23T08:00:00Z", deadline: "2026-11-23T09:00:00Z", max: "2026-11-23T09:00:00Z", from: policy.MaxLifetime},
		{name: "started just before the quiet hours", template: func(p *policy.Template) { p.AutostopDays = policy.EveryDay }, quiet: "CRON_TZ=Europe/Berlin 0 22 * * *",
			start: "2026-11-23T20:30:00Z", deadline: "2026-11-24T21:00:00Z", max: "2026-11-24T21:00:00Z", from: policy.MaxRequirement},
		{name: "the week in which Berlin's summer begins", template: func(p *policy.Template) { p.AutostopDays = days(t, "sunday") }, quiet: "CRON_TZ=Europe/Berlin 30 2 * * *",
			start: "2026-03-28T12:00:00Z", deadline: "2026-03-29T01:00:00Z", max: "2026-03-29T01:00:00Z", from: policy.MaxRequirement},
		{name: "the day after summer began", template: func(p *policy.Template) { p.AutostopDays = days(t, "monday") }, quiet: "CRON_TZ=Europe/Berlin 0 22 * * *",
			start: "2026-03-28T12:00:00Z", deadline: "2026-03-30T20:00:00Z", max: "2026-03-30T20:00:00Z", from: policy.MaxRequirement},
		{name: "the hour that Berlin shows twice", template: func(p *policy.Template) { p.AutostopDays = days(t, "sunday") }, quiet: "CRON_TZ=Europe/Berlin 30 2 * * *",
			start: "2026-10-24T12:00:00Z", deadline: "2026-10-25T00:30:00Z", max: "2026-10-25T00:30:00Z", from: policy.MaxRequirement},
		{name: "the day is the owner's", template: func(p *policy.Template) { p.AutostopDays = days(t, "sunday") }, quiet: "CRON_TZ=Pacific/Auckland 0 1 * * *",
			start: "2026-11-23T08:00:00Z", deadline: "2026-11-28T12:00:00Z", max: "2026-11-28T12:00:00Z", from: policy.MaxRequirement},
		// Weeks count from Monday 2 January 2023: the week of 23 November 2026 is the 203rd after it, that of 30 November the 204th.
		{name: "every second week", template: func(p *policy.Template) { p.AutostopDays, p.AutostopWeeks = days(t, "wednesday"), 2 },
			start: "2026-11-23T08:00:00Z", deadline: "2026-12-02T00:00:00Z", max: "2026-12-02T00:00:00Z", from: policy.MaxRequirement},
		{name: "every sixteenth week", template: func(p *policy.Template) { p.AutostopDays, p.AutostopWeeks = days(t, "monday"), 16 },
			start: "2026-11-23T08:00:00Z", deadline: "2026-12-28T00:00:00Z", max: "2026-12-28T00:00:00Z", from: policy.MaxRequirement},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := policy.Facts{Template: open, Workspace: policy.Workspace{TTL: tt.ttl}, Quiet: quiet(t, policy.DefaultQuietHours)}
			if tt.template != nil {
				tt.template(&f.Template)
			}
			if tt.quiet != "" {
				f.Quiet = quiet(t, tt.quiet)
			}
			b, deadline := f.Started(at(t, tt.start))
			text := func(t *time.Time) string {
				if t == nil {
					return ""
				}
				return t.UTC().Format(time.RFC3339)
			}
			if text(deadline) != tt.deadline || text(b.Max) != tt.max || b.MaxFrom != tt.from {
				t.Errorf("deadline %s, at most %s by %s; want %s, %s by %s", text(deadline), text(b.Max), b.MaxFrom, tt.deadline, tt.max, tt.from)
			}
		})
	}
}

// The tests of consequences check what happens next to a workspace, when, and the sentence that explains it.

const consequencesNow = "2026-11-23T10:00:00Z" // Monday, 11:00 in Berlin

type consequence struct {
	Action     sdk.ScheduledAction
	At         string
	Transition sdk.Transition
	Sentence   string
}

// situation is what differs from a workspace that was just used, of a template without rules.
type situation struct {
	name string
	edit func(f *policy.Facts)
	want []consequence
}

func ptr(t *testing.T, text string) *time.Time {
	t.Helper()
	v := at(t, text)
	return &v
}

// lastBuilds returns a start that ended two hours ago, and a stop that ended the evening before.
func lastBuilds(t *testing.T) (running, stopped policy.Build) {
	t.Helper()
	return policy.Build{Transition: sdk.TransitionStart, Status: sdk.JobSucceeded, EndedAt: at(t, "2026-11-23T08:00:00Z")},
		policy.Build{Transition: sdk.TransitionStop, Status: sdk.JobSucceeded, EndedAt: at(t, "2026-11-22T18:00:00Z")}
}

func checkConsequences(t *testing.T, situations []situation) {
	t.Helper()
	now := at(t, consequencesNow)
	for _, tt := range situations {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := policy.Facts{
				Template:  policy.Template{AllowAutostart: true, AllowAutostop: true, AutostartDays: policy.EveryDay, AutostopWeeks: 1},
				Workspace: policy.Workspace{LastUsed: now}, Quiet: quiet(t, "CRON_TZ=Europe/Berlin 0 22 * * *"),
			}
			tt.edit(&f)
			var got []consequence
			for _, c := range f.Consequences(now) {
				g := consequence{Action: c.Action, Transition: c.Transition, Sentence: c.Sentence(now)}
				if !c.At.IsZero() {
					g.At = c.At.UTC().Format(time.RFC3339)
				}
				got = append(got, g)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestConsequencesOfRunning checks when a running workspace stops.
func TestConsequencesOfRunning(t *testing.T) {
	t.Parallel()
	running, _ := lastBuilds(t)
	checkConsequences(t, []situation{
		{name: "nothing is due", edit: func(f *policy.Facts) { f.Build = running }},
		{name: "a build is active", edit: func(f *policy.Facts) {
			f.Build = running
			f.Build.Status, f.Build.Deadline, f.Template.Dormant = sdk.JobRunning, ptr(t, consequencesNow), time.Hour
		}},
		{name: "the template's default", edit: func(f *policy.Facts) {
			f.Build = running
			f.Build.Deadline, f.Build.Bounds = ptr(t, "2026-11-23T17:00:00Z"), policy.Bounds{TTL: 8 * time.Hour, TTLFrom: policy.TTLTemplate}
			f.Build.Extensions = 2
		}, want: []consequence{{sdk.ScheduledStop, "2026-11-23T17:00:00Z", sdk.TransitionStop, "Stops today at 18:00 (Europe/Berlin) because the template's default is 8 h; extended twice."}}},
		{name: "its own setting, in use", edit: func(f *policy.Facts) {
			f.Build = running
			f.Build.Deadline, f.Build.Bounds = ptr(t, "2026-11-24T09:30:00Z"), policy.Bounds{TTL: 90 * time.Minute, TTLFrom: policy.TTLWorkspace}
			f.Build.Bumped = true
		}, want: []consequence{{sdk.ScheduledStop, "2026-11-24T09:30:00Z", sdk.TransitionStop, "Stops tomorrow at 10:30 (Europe/Berlin) because its autostop is set to 1 h 30 min; postponed while in use."}}},
		{name: "the requirement", edit: func(f *policy.Facts) {
			f.Build, f.Template.AutostopDays = running, days(t, "saturday", "wednesday")
			f.Build.Deadline, f.Build.Bounds = ptr(t, "2026-11-25T21:00:00Z"), policy.Bounds{Max: ptr(t, "2026-11-25T21:00:00Z"), MaxFrom: policy.MaxRequirement, TTL: time.Hour, TTLFrom: policy.TTLWorkspace}
		}, want: []consequence{{sdk.ScheduledStop, "2026-11-25T21:00:00Z", sdk.TransitionStop,
			"Stops on Wed 25 Nov 2026 at 22:00 (Europe/Berlin) because the template requires a stop when the owner's quiet hours begin (Wednesday and Saturday)."}}},
		{name: "the maximum lifetime is over", edit: func(f *policy.Facts) {
			f.Build, f.Template.MaxLifetime = running, 24*time.Hour
			f.Build.Deadline, f.Build.Bounds = ptr(t, consequencesNow), policy.Bounds{Max: ptr(t, consequencesNow), MaxFrom: policy.MaxLifetime}
		}, want: []consequence{{sdk.ScheduledStop, consequencesNow, sdk.TransitionStop, "Stops now because the template allows it to run for at most 24 h."}}},
		{name: "a retry", edit: func(f *policy.Facts) {
			f.Build, f.Workspace.RetryAt = running, ptr(t, "2026-11-23T10:04:00Z")
			f.Build.Deadline = ptr(t, consequencesNow)
		}, want: []consequence{{sdk.ScheduledStop, "2026-11-23T10:04:00Z", sdk.TransitionStop, "Stops today at 11:04 (Europe/Berlin) because it has a deadline."}}},
	})
}

// TestConsequencesOfFailures checks what follows a build that failed.
func TestConsequencesOfFailures(t *testing.T) {
	t.Parallel()
	running, stopped := lastBuilds(t)
	checkConsequences(t, []situation{
		{name: "a failed start", edit: func(f *policy.Facts) {
			f.Build, f.Template.FailureTTL = running, 30*time.Minute
			f.Build.Status, f.Build.EndedAt = sdk.JobFailed, at(t, "2026-11-23T09:50:00Z")
		}, want: []consequence{{sdk.ScheduledStop, "2026-11-23T10:20:00Z", sdk.TransitionStop,
			"Stops today at 11:20 (Europe/Berlin) because its start failed and the template stops failed workspaces after 30 min."}}},
		{name: "a failed start without the rule", edit: func(f *policy.Facts) { f.Build = running; f.Build.Status = sdk.JobFailed }},
		{name: "a failed automatic stop", edit: func(f *policy.Facts) {
			f.Build = stopped
			f.Build.Status, f.Build.Reason, f.Workspace.RetryAt = sdk.JobFailed, sdk.ReasonAutostop, ptr(t, "2026-11-23T10:01:00Z")
		}, want: []consequence{{sdk.ScheduledStop, "2026-11-23T10:01:00Z", sdk.TransitionStop, "Stops again today at 11:01 (Europe/Berlin) because the last automatic stop failed."}}},
		{name: "a failed stop by a person", edit: func(f *policy.Facts) {
			f.Build = stopped
			f.Build.Status, f.Build.Reason = sdk.JobFailed, sdk.ReasonCLI
		}},
	})
}

// TestConsequencesOfSchedules checks when a stopped workspace starts.
func TestConsequencesOfSchedules(t *testing.T) {
	t.Parallel()
	_, stopped := lastBuilds(t)
	checkConsequences(t, []situation{
		{name: "a schedule", edit: func(f *policy.Facts) {
			f.Build, f.Workspace.Schedule = stopped, "CRON_TZ=Europe/Berlin 30 9 * * 1-5"
		}, want: []consequence{{sdk.ScheduledStart, "2026-11-24T08:30:00Z", sdk.TransitionStart, "Starts tomorrow at 09:30 (Europe/Berlin) because of its autostart schedule."}}},
		{name: "a schedule that came while the server was down", edit: func(f *policy.Facts) {
			f.Build, f.Workspace.Schedule = stopped, "CRON_TZ=Europe/Berlin 15 10 * * *"
		}, want: []consequence{{sdk.ScheduledStart, "2026-11-23T09:15:00Z", sdk.TransitionStart, "Starts now because of its autostart schedule."}}},
		{name: "a schedule that came too long ago", edit: func(f *policy.Facts) {
			f.Build, f.Workspace.Schedule = stopped, "CRON_TZ=Europe/Berlin 55 9 * * *"
		}, want: []consequence{{sdk.ScheduledStart, "2026-11-24T08:55:00Z", sdk.TransitionStart, "Starts tomorrow at 09:55 (Europe/Berlin) because of its autostart schedule."}}},
		{name: "stopped after the schedule", edit: func(f *policy.Facts) {
			f.Build, f.Workspace.Schedule = stopped, "CRON_TZ=Europe/Berlin 15 10 * * *"
			f.Build.EndedAt = at(t, "2026-11-23T09:20:00Z")
		}, want: []consequence{{sdk.ScheduledStart, "2026-11-24T09:15:00Z", sdk.TransitionStart, "Starts tomorrow at 10:15 (Europe/Berlin) because of its autostart schedule."}}},
		{name: "the template restricts the days", edit: func(f *policy.Facts) {
			f.Build, f.Workspace.Schedule, f.Template.AutostartDays = stopped, "CRON_TZ=Europe/Berlin 30 9 * * *", days(t, "friday")
		}, want: []consequence{{sdk.ScheduledStart, "2026-11-27T08:30:00Z", sdk.TransitionStart,
			"Starts on Fri 27 Nov 2026 at 09:30 (Europe/Berlin) because of its autostart schedule; the template allows autostart on Friday only."}}},
		{name: "the template allows none of its days", edit: func(f *policy.Facts) {
			f.Build, f.Workspace.Schedule, f.Template.AutostartDays = stopped, "CRON_TZ=Europe/Berlin 30 9 * * 0", days(t, "friday")
		}, want: []consequence{{sdk.ScheduledStart, "", sdk.TransitionStart, "Does not start automatically because the template allows autostart on Friday only."}}},
		{name: "the template does not allow autostart", edit: func(f *policy.Facts) {
			f.Build, f.Workspace.Schedule, f.Template.AllowAutostart = stopped, "30 9 * * *", false
		}, want: []consequence{{sdk.ScheduledStart, "", sdk.TransitionStart, "Does not start automatically because the template does not allow autostart."}}},
		{name: "the owner is suspended", edit: func(f *policy.Facts) {
			f.Build, f.Workspace.Schedule, f.Workspace.OwnerSuspended = stopped, "30 9 * * *", true
		}, want: []consequence{{sdk.ScheduledStart, "", sdk.TransitionStart, "Does not start automatically because its owner is suspended."}}},
	})
}

// TestConsequencesOfDormancy checks what follows when a workspace is not used.
func TestConsequencesOfDormancy(t *testing.T) {
	t.Parallel()
	running, stopped := lastBuilds(t)
	checkConsequences(t, []situation{
		{name: "not used for long", edit: func(f *policy.Facts) {
			f.Build, f.Template.Dormant, f.Workspace.LastUsed = stopped, 30*24*time.Hour, at(t, "2026-11-20T08:00:00Z")
		}, want: []consequence{{sdk.ScheduledDormancy, "2026-12-20T08:00:00Z", "",
			"Becomes dormant on Sun 20 Dec 2026 at 09:00 (Europe/Berlin) because it was last used on Fri 20 Nov 2026 at 09:00 (Europe/Berlin) and the template's limit is 30 days. Use it to prevent that."}}},
		{name: "dormant and running", edit: func(f *policy.Facts) {
			f.Build, f.Workspace.DormantAt, f.Workspace.Schedule = running, ptr(t, "2026-11-20T08:00:00Z"), "30 9 * * *"
			f.Template.Dormant, f.Template.Delete = time.Hour, 7*24*time.Hour
		}, want: []consequence{
			{sdk.ScheduledStop, "2026-11-20T08:00:00Z", sdk.TransitionStop, "Stops now because of its dormancy."},
			{sdk.ScheduledDelete, "2026-11-27T08:00:00Z", sdk.TransitionDelete,
				"Is deleted on Fri 27 Nov 2026 at 09:00 (Europe/Berlin) because it became dormant on Fri 20 Nov 2026 at 09:00 (Europe/Berlin) and the template deletes dormant workspaces after 7 days. Wake it to keep it."},
		}},
		{name: "dormant and kept", edit: func(f *policy.Facts) {
			f.Build, f.Workspace.DormantAt, f.Workspace.Schedule = stopped, ptr(t, "2026-11-20T08:00:00Z"), "30 9 * * *"
		}},
	})
}

// TestAfterDormancy checks what the owner of a workspace is told that becomes dormant.
func TestAfterDormancy(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-23T10:00:00Z")
	f := policy.Facts{Quiet: quiet(t, policy.DefaultQuietHours)}
	if got := f.AfterDormancy(now); got != "" {
		t.Errorf("kept: %q", got)
	}
	f.Template.Delete = 7 * 24 * time.Hour
	want := "Is deleted on Mon 30 Nov 2026 at 10:00 UTC because it became dormant on Mon 23 Nov 2026 at 10:00 UTC and the template deletes dormant workspaces after 7 days. Wake it to keep it."
	if got := f.AfterDormancy(now); got != want {
		t.Errorf("deleted: %q, want %q", got, want)
	}
	if f.Workspace.DormantAt != nil {
		t.Error("the facts have changed")
	}
}

// TestAnnouncements checks when the owner is told, and that the loop looks again exactly then.
func TestAnnouncements(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-23T10:00:00Z")
	deadline := now.Add(2 * time.Hour)
	f := policy.Facts{
		Template: policy.Template{Notify: 30 * time.Minute}, Quiet: quiet(t, policy.DefaultQuietHours),
		Build: policy.Build{Transition: sdk.TransitionStart, Status: sdk.JobSucceeded, Deadline: &deadline},
	}
	steps := []struct {
		at        time.Time
		announced bool
		next      time.Time
	}{
		{now, false, deadline.Add(-30 * time.Minute)},
		{deadline.Add(-30 * time.Minute), true, deadline},
		{deadline.Add(-time.Second), true, deadline},
		{deadline, false, deadline.Add(24 * time.Hour)},
	}
	for _, step := range steps {
		cs := f.Consequences(step.at)
		if len(cs) != 1 || cs[0].Announced(step.at) != step.announced || !policy.NextLook(cs, step.at).Equal(step.next) {
			t.Errorf("at %s: %+v, next look %s", step.at, cs, policy.NextLook(cs, step.at))
		}
	}
	f.Template.Notify = 0
	if cs := f.Consequences(deadline.Add(-time.Second)); cs[0].Announced(deadline.Add(-time.Second)) {
		t.Error("announced although the template turned that off")
	}
}

// TestRebound checks that new rules bound a workspace that runs already, never so soon that it could not be announced, and only once.
func TestRebound(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-23T10:00:00Z")
	started := now.Add(-20 * 24 * time.Hour)
	f := policy.Facts{
		Template: policy.Template{AllowAutostop: true, AutostopWeeks: 1}, Quiet: quiet(t, policy.DefaultQuietHours), RulesAt: started,
		Build: policy.Build{Transition: sdk.TransitionStart, Status: sdk.JobSucceeded, EndedAt: started, RulesAt: &started},
	}
	if _, _, changed := f.Rebound(now); changed {
		t.Error("the same rules bound it again")
	}
	f.RulesAt, f.Template.MaxLifetime, f.Template.Notify = now, 24*time.Hour, time.Hour
	b, deadline, changed := f.Rebound(now)
	if !changed || deadline == nil || !deadline.Equal(now.Add(time.Hour)) || b.MaxFrom != policy.MaxLifetime {
		t.Fatalf("a maximum that is over: %v, %+v", deadline, b)
	}
	applied := f.RulesAt
	f.Build.Bounds, f.Build.Deadline, f.Build.RulesAt = b, deadline, &applied
	if _, _, changed := f.Rebound(now.Add(2 * time.Hour)); changed {
		t.Error("the notice was given twice")
	}
	// The maximum goes, and what was its deadline with it.
	later := now.Add(time.Minute)
	f.RulesAt, f.Template.MaxLifetime = later, 0
	if b, deadline, changed := f.Rebound(later); !changed || deadline != nil || b.Max != nil {
		t.Errorf("without the maximum: %v, %+v", deadline, b)
	}
	f.Build.Bounds, f.Build.Deadline = policy.Bounds{TTL: time.Hour, TTLFrom: policy.TTLWorkspace}, &later
	f.Template.AutostopDays = policy.EveryDay
	if b, deadline, changed := f.Rebound(now); !changed || !deadline.Equal(later) || b.Max == nil || !b.Max.Equal(at(t, "2026-11-24T00:00:00Z")) {
		t.Errorf("a requirement after the deadline: %v, %+v", deadline, b)
	}
	f.Build.Status = sdk.JobFailed
	if _, _, changed := f.Rebound(now); changed {
		t.Error("a workspace that does not run is bounded")
	}
}

func TestParseQuietHours(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"CRON_TZ=Europe/Berlin 30 22 * * *": "22:30", "0 0 * * *": "00:00", "CRON_TZ=UTC 5 4 * * 0-6": "04:05",
		"": "", "0 22 * * 1-5": "", "0,30 22 * * *": "", "0 * * * *": "", "0 22 1 * *": "", "CRON_TZ=Nowhere/Here 0 22 * * *": "", "22:00": "",
	} {
		q, err := policy.ParseQuietHours(text)
		switch {
		case want == "" && (fault.CodeOf(err) != fault.Invalid || len(fault.As(err).Fields) != 1):
			t.Errorf("%q: %v, want invalid", text, err)
		case want != "" && (err != nil || q.Clock() != want):
			t.Errorf("%q: %s, %v, want %s", text, q.Clock(), err, want)
		}
	}
}

func TestDays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "no day", "monday": "Monday", "Sunday,MONDAY": "Monday and Sunday", "friday,tuesday,thursday": "Tuesday, Thursday and Friday",
		"monday,tuesday,wednesday,thursday,friday,saturday,sunday": "every day",
	} {
		var names []string
		if text != "" {
			names = strings.Split(text, ",")
		}
		d, err := policy.ParseDays("x", names)
		if err != nil || d.String() != want || len(d.Names()) != len(names) {
			t.Errorf("%q: %q, %v", text, d, err)
		}
	}
	if _, err := policy.ParseDays("x", []string{"mon"}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("mon: %v", err)
	}
}

// FuzzParseQuietHours checks that what is accepted is one time of day, which comes once a day in every zone.
func FuzzParseQuietHours(f *testing.F) {
	f.Add("CRON_TZ=Europe/Berlin 0 22 * * *")
	f.Add("0 0 * * *")
	f.Add("CRON_TZ=Africa/Cairo 30 23 * * 0-6")
	f.Fuzz(func(t *testing.T, text string) {
		q, err := policy.ParseQuietHours(text)
		if err != nil {
			if fault.CodeOf(err) != fault.Invalid {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if _, err := time.Parse("15:04", q.Clock()); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		at := time.Unix(1_772_000_000, 0)
		for range 10 {
			next := q.Next(at)
			if !next.After(at) || next.Sub(at) > 50*time.Hour {
				t.Fatalf("%q comes at %s after %s", text, next, at)
			}
			at = next
		}
	})
}
