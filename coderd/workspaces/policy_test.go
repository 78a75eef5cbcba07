package workspaces_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/workspaces"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// edit changes a template as tom.
func edit(t *testing.T, w *coderdtest.Server, template uuid.UUID, p sdk.TemplatePolicy, more ...func(*sdk.UpdateTemplateRequest)) {
	t.Helper()
	req := sdk.UpdateTemplateRequest{TemplatePolicy: p}
	for _, more := range more {
		more(&req)
	}
	if _, err := w.As("tom").UpdateTemplate(t.Context(), template, req); err != nil {
		t.Fatal(err)
	}
}

func schedule(t *testing.T, w *coderdtest.Server, at time.Time) {
	t.Helper()
	if err := w.Workspaces.RunSchedule(t.Context(), at); err != nil {
		t.Fatal(err)
	}
}

const hour = int64(3_600_000)

// TestMembersKeepToTheTemplate checks that an owner of a workspace can set what the template allows and nothing more.
func TestMembersKeepToTheTemplate(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	ann := w.As("ann")
	path := "workspaces/" + ws.ID.String()
	set := func(what, path string, body any, want int) {
		t.Helper()
		if got := call(t, w, "ann", "PUT", path, body, nil); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	set("own time to live", path+"/ttl", map[string]any{"ttl_ms": 30 * hour}, 204)
	edit(t, w, template.ID, sdk.TemplatePolicy{MaxTTLMillis: ptr(24 * hour)})
	set("more than the maximum", path+"/ttl", map[string]any{"ttl_ms": 24*hour + 1000}, 400)
	set("the maximum", path+"/ttl", map[string]any{"ttl_ms": 24 * hour}, 204)
	if _, err := ann.CreateWorkspace(t.Context(), sdk.Me, sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "long", TTLMillis: ptr(25 * hour)}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("create with more than the maximum: %v", err)
	}
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	build := w.Get(ws.ID).LatestBuild
	if build.MaxDeadline == nil || !build.MaxDeadline.Equal(*build.Deadline) {
		t.Fatalf("deadline %v, at most %v", build.Deadline, build.MaxDeadline)
	}
	set("past the maximum", path+"/extend", sdk.ExtendRequest{Deadline: build.MaxDeadline.Add(time.Second)}, 400)
	set("to an hour", path+"/extend", sdk.ExtendRequest{Deadline: time.Now().Add(time.Hour)}, 200)
	set("to the maximum", path+"/extend", sdk.ExtendRequest{Deadline: *build.MaxDeadline}, 200)
	set("autostop off", path+"/ttl", map[string]any{"ttl_ms": nil}, 204)
	if got := w.Get(ws.ID).LatestBuild; got.Deadline == nil || !got.Deadline.Equal(*build.MaxDeadline) {
		t.Errorf("without autostop it stops at %v, want the maximum %v", got.Deadline, build.MaxDeadline)
	}
	set("autostart", path+"/autostart", map[string]any{"schedule": "30 9 * * *"}, 204)

	edit(t, w, template.ID, sdk.TemplatePolicy{AllowUserAutostart: ptr(false), AllowUserAutostop: ptr(false)},
		func(r *sdk.UpdateTemplateRequest) { r.DefaultTTLMillis = ptr(8 * hour) })
	set("a time to live of its own", path+"/ttl", map[string]any{"ttl_ms": 2 * hour}, 400)
	set("none", path+"/ttl", map[string]any{"ttl_ms": nil}, 400)
	set("the template's", path+"/ttl", map[string]any{"ttl_ms": 8 * hour}, 204)
	set("a schedule", path+"/autostart", map[string]any{"schedule": "30 9 * * *"}, 400)
	set("no schedule", path+"/autostart", map[string]any{"schedule": ""}, 204)
	for name, req := range map[string]sdk.CreateWorkspaceRequest{
		"ttl": {TTLMillis: ptr(2 * hour)}, "schedule": {AutostartSchedule: ptr("30 9 * * *")},
	} {
		req.TemplateID, req.Name = template.ID, name
		if _, err := ann.CreateWorkspace(t.Context(), sdk.Me, req); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("create with its own %s: %v", name, err)
		}
	}
	if got := w.Get(ws.ID).TTLMillis; got == nil || *got != 8*hour {
		t.Errorf("time to live: %v, want the template's", got)
	}
}

// TestCancelIsForbidden checks that the template decides whether users cancel builds, on both routes, and that its admins may.
func TestCancelIsForbidden(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	edit(t, w, template.ID, sdk.TemplatePolicy{AllowUserCancelWorkspaceJobs: ptr(false)})
	ws := w.Workspace("ann", "dev", template.ID)
	if ws.TemplateAllowUserCancelWorkspaceJobs {
		t.Error("the workspace shows that builds can be canceled")
	}
	if err := w.As("ann").CancelBuild(t.Context(), ws.LatestBuild.ID); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("cancel the build: %v, want forbidden", err)
	}
	job := "organizations/default/provisionerjobs/" + ws.LatestBuild.Job.ID.String() + "/cancel"
	if got := call(t, w, "ann", "PATCH", job, nil, nil); got != 403 {
		t.Errorf("cancel the job: %d, want 403", got)
	}
	if err := w.As("olga").CancelBuild(t.Context(), ws.LatestBuild.ID); err != nil {
		t.Errorf("an owner of the deployment: %v", err)
	}
}

// TestDormancy follows a workspace that is not used: it is announced, stopped and hidden, does not start, is woken, and in the end deleted.
// recorded checks that one row of the audit log matches a search, and how its description begins.
func recorded(t *testing.T, w *coderdtest.Server, q, description string) {
	t.Helper()
	log, err := w.As("olga").AuditLogs(t.Context(), sdk.LogQuery{Q: q})
	if err != nil || len(log.AuditLogs) != 1 || !strings.HasPrefix(log.AuditLogs[0].Description, description) {
		t.Errorf("%s: %+v, %v, want %q", q, log, err, description)
	}
}

func TestDormancy(t *testing.T) {
	t.Parallel()
	told := &recorder{}
	w := coderdtest.New(t, func(o *coderd.Options) { o.Announcer = told })
	template := w.Template("process", process())
	edit(t, w, template.ID, sdk.TemplatePolicy{TimeTilDormantMillis: ptr(48 * hour), TimeTilDormantDeleteMillis: ptr(24 * hour)})
	ws, _ := w.Running("ann", "dev", template.ID)
	ann := w.As("ann")
	used := w.Get(ws.ID).LastUsedAt
	schedule(t, w, used.Add(47*time.Hour))
	if got := w.Get(ws.ID); got.DormantAt != nil || len(got.Consequences) != 1 || got.Consequences[0].Action != sdk.ScheduledDormancy {
		t.Fatalf("before its time: dormant at %v, %+v", got.DormantAt, got.Consequences)
	}
	schedule(t, w, used.Add(48*time.Hour))
	got := w.Get(ws.ID)
	if got.DormantAt == nil || got.DeletingAt == nil || !got.DeletingAt.Equal(got.DormantAt.Add(24*time.Hour)) || got.LatestBuild.Transition != sdk.TransitionStop ||
		got.LatestBuild.Reason != sdk.ReasonDormancy || !strings.HasPrefix(got.LatestBuild.Explanation, "Became dormant on ") {
		t.Fatalf("at its time: dormant %v, deleted %v, %s by %s: %q", got.DormantAt, got.DeletingAt, got.LatestBuild.Transition, got.LatestBuild.Reason, got.LatestBuild.Explanation)
	}
	recorded(t, w, "resource_type:workspace build_reason:dormancy", "System stopped workspace ann/dev because it was last used ")
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	if news := told.take(); len(news) != 2 || !news[1].Done || !strings.HasPrefix(news[1].Explanation, "Became dormant on ") ||
		!strings.Contains(news[1].Explanation, ". Is deleted tomorrow at ") || !strings.HasSuffix(news[1].Explanation, " Wake it to keep it.") {
		t.Errorf("the owner is told: %+v", news)
	}
	for q, want := range map[string]int{"": 0, "dormant:true": 1, "is-dormant:true": 1, "dormant:false": 0, "id:" + ws.ID.String(): 1, "owner:me dormant:true": 1} {
		if list, err := ann.Workspaces(t.Context(), sdk.WorkspacesQuery{Q: q}); err != nil || list.Count != want {
			t.Errorf("list %q: %d, %v, want %d", q, list.Count, err, want)
		}
	}
	if _, err := ann.CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart}); fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "Wake it first") {
		t.Errorf("start of a dormant workspace: %v", err)
	}
	if err := w.As("bob").UpdateDormancy(t.Context(), ws.ID, sdk.UpdateDormancyRequest{}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("another member wakes it: %v", err)
	}
	if err := w.As("tom").UpdateDormancy(t.Context(), ws.ID, sdk.UpdateDormancyRequest{}); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a template admin wakes it: %v", err)
	}
	if err := ann.UpdateDormancy(t.Context(), ws.ID, sdk.UpdateDormancyRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := w.Get(ws.ID); got.DormantAt != nil || got.DeletingAt != nil {
		t.Errorf("awake: %v, %v", got.DormantAt, got.DeletingAt)
	}
	schedule(t, w, used.Add(40*time.Hour)) // the clock goes back to a time soon after it was woken
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(coderdtest.Built("s"))

	// A person can make it dormant; the loop stops it.
	if err := ann.UpdateDormancy(t.Context(), ws.ID, sdk.UpdateDormancyRequest{Dormant: true}); err != nil {
		t.Fatal(err)
	}
	since := *w.Get(ws.ID).DormantAt
	schedule(t, w, since)
	if got := w.Get(ws.ID).LatestBuild; got.Transition != sdk.TransitionStop || got.Reason != sdk.ReasonDormancy {
		t.Fatalf("dormant by hand: %s by %s", got.Transition, got.Reason)
	}
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	schedule(t, w, since.Add(24*time.Hour-time.Second))
	if got := w.Get(ws.ID).LatestBuild; got.Transition != sdk.TransitionStop {
		t.Fatalf("a second before its deletion: %s", got.Transition)
	}
	// A deletion that fails is tried again.
	schedule(t, w, since.Add(24*time.Hour))
	if got := w.Get(ws.ID).LatestBuild; got.Transition != sdk.TransitionDelete || got.Reason != sdk.ReasonAutoDelete {
		t.Fatalf("at its deletion: %s by %s", got.Transition, got.Reason)
	}
	broken := coderdtest.Built("s")
	broken.Error = "cannot be deleted"
	w.Daemon().Next().Finish(broken)
	testwait.Until(t, "the deletion has failed", w.Is(ws.ID, sdk.WorkspaceFailed))
	schedule(t, w, since.Add(24*time.Hour+30*time.Second))
	before := w.Get(ws.ID).LatestBuild.BuildNumber
	schedule(t, w, since.Add(24*time.Hour+61*time.Second))
	if got := w.Get(ws.ID).LatestBuild; got.BuildNumber != before+1 || got.Transition != sdk.TransitionDelete {
		t.Errorf("after a failed deletion: build %d (%s), want %d", got.BuildNumber, got.Transition, before+1)
	}
}

// TestRestartClocks checks the two requests with which an admin spares workspaces from a new limit.
func TestRestartClocks(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	old, _ := w.Running("ann", "old", template.ID)
	w.Exec(`UPDATE workspaces SET last_used_at = now() - interval '30 days'`)
	w.Exec(`UPDATE workspaces SET dormant_at = now() - interval '30 days' WHERE id = $1`, old.ID)
	edit(t, w, template.ID, sdk.TemplatePolicy{TimeTilDormantMillis: ptr(24 * hour), TimeTilDormantDeleteMillis: ptr(24 * hour)}, func(r *sdk.UpdateTemplateRequest) {
		r.UpdateWorkspaceLastUsedAt, r.UpdateWorkspaceDormantAt = ptr(true), ptr(true)
	})
	schedule(t, w, time.Now())
	if got := w.Get(ws.ID); got.DormantAt != nil {
		t.Error("the workspace became dormant at once")
	}
	if got := w.Get(old.ID); got.LatestBuild.Transition == sdk.TransitionDelete {
		t.Error("the dormant workspace was deleted at once")
	}
}

// TestFailedStartIsCleanedUp checks that what a failed start left is stopped after the template's time, and only then.
func TestFailedStartIsCleanedUp(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	edit(t, w, template.ID, sdk.TemplatePolicy{FailureTTLMillis: ptr(hour)})
	ws := w.Workspace("ann", "dev", template.ID)
	broken := coderdtest.Built("s")
	broken.Error = "cannot be started"
	w.Daemon().Next().Finish(broken)
	testwait.Until(t, "the start has failed", w.Is(ws.ID, sdk.WorkspaceFailed))
	ended := *w.Get(ws.ID).LatestBuild.Job.CompletedAt
	schedule(t, w, ended.Add(time.Hour-time.Second))
	if got := w.Get(ws.ID).LatestBuild; got.Transition != sdk.TransitionStart {
		t.Fatalf("before the time: %s", got.Transition)
	}
	schedule(t, w, ended.Add(time.Hour))
	if got := w.Get(ws.ID).LatestBuild; got.Transition != sdk.TransitionStop || !strings.Contains(got.Explanation, "stops failed workspaces after 1 h") {
		t.Errorf("at the time: %s, %q", got.Transition, got.Explanation)
	}
}

// TestRequiredStop checks that the owner's quiet hours and the template's days give the latest deadline, that a user cannot extend past
// it, and that new quiet hours and new rules bound a workspace that runs already.
func TestRequiredStop(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ann := w.As("ann")
	if _, err := ann.UpdateQuietHours(t.Context(), sdk.Me, sdk.UpdateQuietHoursRequest{Schedule: "CRON_TZ=Europe/Berlin 0 22 * * *"}); err != nil {
		t.Fatal(err)
	}
	ws, _ := w.Running("ann", "dev", template.ID)
	if got := w.Get(ws.ID).LatestBuild; got.Deadline != nil || got.MaxDeadline != nil {
		t.Fatalf("without rules: %v, %v", got.Deadline, got.MaxDeadline)
	}
	every := sdk.AutostopRequirement{DaysOfWeek: []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}, Weeks: 1}
	edit(t, w, template.ID, sdk.TemplatePolicy{AutostopRequirement: &every})
	schedule(t, w, time.Now())
	got := w.Get(ws.ID)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	end := got.LatestBuild.MaxDeadline
	if end == nil || end.In(berlin).Format("15:04") != "22:00" || !got.LatestBuild.Deadline.Equal(*end) || len(got.Consequences) != 1 ||
		!strings.Contains(got.Consequences[0].Explanation, "22:00 (Europe/Berlin) because the template requires a stop when the owner's quiet hours begin (every day)") {
		t.Fatalf("with a new rule: %v, %+v", end, got.Consequences)
	}
	if err := ann.ExtendWorkspace(t.Context(), ws.ID, sdk.ExtendRequest{Deadline: end.Add(time.Minute)}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("extend past the required stop: %v", err)
	}
	if _, err := ann.UpdateQuietHours(t.Context(), sdk.Me, sdk.UpdateQuietHoursRequest{Schedule: "CRON_TZ=Europe/Berlin 30 23 * * *"}); err != nil {
		t.Fatal(err)
	}
	schedule(t, w, time.Now())
	end = w.Get(ws.ID).LatestBuild.MaxDeadline
	if end == nil || end.In(berlin).Format("15:04") != "23:30" {
		t.Fatalf("with new quiet hours: %v", end)
	}
	schedule(t, w, *end)
	if got := w.Get(ws.ID).LatestBuild; got.Transition != sdk.TransitionStop || got.Reason != sdk.ReasonAutostop || !strings.HasPrefix(got.Explanation, "Stopped on ") {
		t.Errorf("at the quiet hours: %s by %s, %q", got.Transition, got.Reason, got.Explanation)
	}
}

// TestAutostartKeepsToTheActiveVersion checks that a scheduled start uses the required active version, on allowed days only.
func TestAutostartKeepsToTheActiveVersion(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	w.Build("ann", ws.ID, sdk.TransitionStop)
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	old := ws.LatestBuild.TemplateVersionID
	newer := w.Version(&template.ID, process())
	if err := w.As("tom").UpdateActiveVersion(t.Context(), template.ID, sdk.UpdateActiveVersionRequest{ID: newer.ID}); err != nil {
		t.Fatal(err)
	}
	edit(t, w, template.ID, sdk.TemplatePolicy{AutostartRequirement: &sdk.AutostartRequirement{DaysOfWeek: []string{"wednesday"}}},
		func(r *sdk.UpdateTemplateRequest) { r.RequireActiveVersion = ptr(true) })
	if _, err := w.As("ann").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart, TemplateVersionID: old}); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("start with an old version: %v", err)
	}
	if call(t, w, "ann", "POST", "workspaces/"+ws.ID.String()+"/restart", map[string]any{"template_version_id": old}, nil) != 403 {
		t.Error("restart with an old version is not forbidden")
	}
	if err := w.As("ann").UpdateAutostart(t.Context(), ws.ID, sdk.UpdateAutostartRequest{Schedule: ptr("CRON_TZ=UTC 30 9 * * *")}); err != nil {
		t.Fatal(err)
	}
	next := w.Get(ws.ID).NextStartAt
	if next == nil || next.UTC().Weekday() != time.Wednesday {
		t.Fatalf("next start: %v", next)
	}
	schedule(t, w, next.Add(-24*time.Hour))
	if got := w.Get(ws.ID).LatestBuild.Transition; got != sdk.TransitionStop {
		t.Fatalf("on a day that the template does not allow: %s", got)
	}
	schedule(t, w, *next)
	if got := w.Get(ws.ID).LatestBuild; got.Transition != sdk.TransitionStart || got.Reason != sdk.ReasonAutostart || got.TemplateVersionID != newer.ID {
		t.Errorf("on Wednesday: %s by %s with version %s", got.Transition, got.Reason, got.TemplateVersionName)
	}
	var mismatch sdk.ResolveAutostartResponse
	if got := call(t, w, "ann", "GET", "workspaces/"+ws.ID.String()+"/resolve-autostart", nil, &mismatch); got != 200 || mismatch.ParameterMismatch {
		t.Errorf("resolve-autostart: %d, %+v", got, mismatch)
	}
}

// TestStopsMeetScheduledStarts checks that a scheduled start that comes while a workspace runs moves its deadline, for good, and that one that the
// template's maximum cuts short follows the stop.
func TestStopsMeetScheduledStarts(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	scheduled := time.Now().Add(2 * time.Hour).Truncate(time.Minute)
	set := func(at time.Time) {
		t.Helper()
		text := fmt.Sprintf("CRON_TZ=UTC %d %d * * *", at.UTC().Minute(), at.UTC().Hour())
		if err := w.As("ann").UpdateAutostart(t.Context(), ws.ID, sdk.UpdateAutostartRequest{Schedule: &text}); err != nil {
			t.Fatal(err)
		}
	}
	set(scheduled)
	w.Exec(`UPDATE workspace_builds SET deadline = $1, ttl_ms = $2, ttl_from = 'workspace' WHERE workspace_id = $3`, scheduled.Add(5*time.Minute), 8*hour, ws.ID)
	if got := w.Get(ws.ID).Consequences; len(got) != 1 || got[0].At == nil || !got[0].At.Equal(scheduled.Add(8*time.Hour)) ||
		!strings.Contains(got[0].Explanation, "counted from its scheduled start") {
		t.Errorf("before the scheduled start: %+v", got)
	}
	var answer sdk.Response
	if status := call(t, w, "ann", "PUT", "workspaces/"+ws.ID.String()+"/extend", sdk.ExtendRequest{Deadline: scheduled.Add(10 * time.Minute)}, &answer); status != 200 ||
		!strings.Contains(answer.Message, scheduled.Add(8*time.Hour).UTC().Format(time.RFC3339)) || answer.Detail == "" {
		t.Errorf("extend past the scheduled start: %d, %+v", status, answer)
	}
	for _, at := range []time.Time{scheduled, scheduled.Add(10 * time.Minute)} {
		schedule(t, w, at)
		if got := w.Get(ws.ID).LatestBuild; got.BuildNumber != 1 || got.Deadline == nil || !got.Deadline.Equal(scheduled.Add(8*time.Hour)) {
			t.Fatalf("at %s: build %d, deadline %v, want build 1 until %s", at, got.BuildNumber, got.Deadline, scheduled.Add(8*time.Hour))
		}
	}

	now := time.Now()
	set(now.Add(-10 * time.Minute))
	w.Exec(`UPDATE workspace_builds SET extended_at = NULL, deadline = $1, max_deadline = $1, max_from = 'lifetime', bounded_at = (SELECT bounds_changed_at FROM template_policies WHERE template_id = $2)
		WHERE workspace_id = $3`, now, template.ID, ws.ID)
	w.Exec(`UPDATE workspaces SET latest_ended_at = $1 WHERE id = $2`, now.Add(-2*time.Hour), ws.ID)
	schedule(t, w, now)
	if got := w.Get(ws.ID).LatestBuild; got.Transition != sdk.TransitionStop {
		t.Fatalf("at the maximum: %s", got.Transition)
	}
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	schedule(t, w, now.Add(3*time.Minute))
	if got := w.Get(ws.ID).LatestBuild; got.Transition != sdk.TransitionStart || got.Reason != sdk.ReasonAutostart {
		t.Errorf("after the stop: %s by %s; %+v", got.Transition, got.Reason, w.Get(ws.ID).Consequences)
	}
}

// TestActivityBump checks that the template decides by how much use postpones the stop.
func TestActivityBump(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	edit(t, w, template.ID, sdk.TemplatePolicy{ActivityBumpMillis: ptr(3 * hour)}, func(r *sdk.UpdateTemplateRequest) { r.DefaultTTLMillis = ptr(hour) })
	ws, _ := w.Running("ann", "dev", template.ID)
	use := func() time.Time {
		t.Helper()
		if err := w.As("ann").WorkspaceUsage(t.Context(), ws.ID, sdk.UsageRequest{}); err != nil {
			t.Fatal(err)
		}
		return *w.Get(ws.ID).LatestBuild.Deadline
	}
	started := *w.Get(ws.ID).LatestBuild.Deadline
	first := use()
	if by := first.Sub(started); by < 119*time.Minute || by > 121*time.Minute {
		t.Errorf("use postponed the stop by %s, want about 2 h", by)
	}
	if got := w.Get(ws.ID).Consequences; len(got) != 1 || !strings.Contains(got[0].Explanation, "the template's default is 1 h; postponed while in use") {
		t.Errorf("explanation: %+v", got)
	}
	edit(t, w, template.ID, sdk.TemplatePolicy{ActivityBumpMillis: ptr[int64](0)})
	w.Exec(`UPDATE workspace_builds SET deadline = $1`, started)
	if got := use(); !got.Equal(started) {
		t.Errorf("without a bump, use moved the stop from %s to %s", started, got)
	}
}

// TestTwoServersScheduleOnce checks that servers that look at the same time make each build once, and together miss none.
func TestTwoServersScheduleOnce(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	other := coderdtest.New(t, func(o *coderd.Options) {
		o.DB = &database.DB{Queries: w.DB.Queries, Pool: w.DB.Pool}
		o.States = w.States
	})
	template := w.Template("process", process())
	fill(t, w, template, 60)
	now := time.Now()
	w.Exec(`UPDATE workspace_builds SET deadline = $1`, now.Add(-time.Minute))
	var wg sync.WaitGroup
	for range 2 {
		for _, server := range []*coderdtest.Server{w, other} {
			wg.Go(func() {
				if err := server.Workspaces.RunSchedule(t.Context(), now); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	var stops, twice int
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT count(*), count(*) - count(DISTINCT workspace_id) FROM workspace_builds WHERE transition = 'stop'`).Scan(&stops, &twice); err != nil || stops != 60 || twice != 0 {
		t.Errorf("%d stops, %d of them twice, %v; want 60 and 0", stops, twice, err)
	}
}

// recorder keeps announcements, and refuses those that it is told to.
type recorder struct {
	mu     sync.Mutex
	got    []workspaces.Announcement
	broken bool
}

func (r *recorder) Announce(_ context.Context, _ *dbsqlc.Queries, a workspaces.Announcement) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return errors.New("cannot be announced")
	}
	r.got = append(r.got, a)
	return nil
}

func (r *recorder) take() (got []workspaces.Announcement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	got, r.got = r.got, nil
	return got
}

// TestAnnouncer checks that a stop is announced to its owner once, again when it was postponed, and that it is not recorded as announced
// if that failed.
func TestAnnouncer(t *testing.T) {
	t.Parallel()
	told := &recorder{}
	w := coderdtest.New(t, func(o *coderd.Options) { o.Announcer = told })
	template := w.Template("process", process())
	edit(t, w, template.ID, sdk.TemplatePolicy{AutostopNotifyMillis: ptr(hour / 2)}, func(r *sdk.UpdateTemplateRequest) { r.DefaultTTLMillis = ptr(8 * hour) })
	ws, _ := w.Running("ann", "dev", template.ID)
	end := *w.Get(ws.ID).LatestBuild.Deadline
	expect := func(when string, at time.Time, want ...bool) []workspaces.Announcement {
		t.Helper()
		schedule(t, w, at)
		got := told.take()
		if len(got) != len(want) {
			t.Fatalf("%s: %d announcements, want %d", when, len(got), len(want))
		}
		for i, a := range got {
			if a.Done != want[i] || a.Action != sdk.ScheduledStop || a.UserID != w.User("ann") || a.WorkspaceID != ws.ID || a.WorkspaceName != "dev" || a.TemplateID != template.ID {
				t.Errorf("%s: %+v", when, a)
			}
		}
		return got
	}
	expect("31 minutes before", end.Add(-31*time.Minute))
	told.broken = true
	schedule(t, w, end.Add(-30*time.Minute))
	told.broken = false
	expect("at once after it failed", end.Add(-30*time.Minute))
	got := expect("a minute later", end.Add(-29*time.Minute), false)
	if !got[0].At.Equal(end) || !strings.HasSuffix(got[0].Explanation, "because the template's default is 8 h.") {
		t.Errorf("announcement: %+v", got[0])
	}
	expect("before the end", end.Add(-time.Minute))
	later := end.Add(2 * time.Hour).Truncate(time.Second)
	if err := w.As("ann").ExtendWorkspace(t.Context(), ws.ID, sdk.ExtendRequest{Deadline: later}); err != nil {
		t.Fatal(err)
	}
	expect("extended", end)
	expect("before the new end", later.Add(-10*time.Minute), false)
	expect("at the end", later, true)
}
