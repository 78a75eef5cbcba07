package notifications_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// turnOn has a user ask for events that are off at first.
func (w *world) turnOn(user string, templates ...notifications.Template) {
	w.T.Helper()
	req := sdk.UpdateUserNotificationPreferences{TemplateDisabledMap: map[string]bool{}}
	for _, t := range templates {
		req.TemplateDisabledMap[t.ID.String()] = false
	}
	if _, err := w.As(user).UpdateNotificationPreferences(w.T.Context(), "me", req); err != nil {
		w.T.Fatal(err)
	}
}

// TestOptionalEvents checks that created and manually updated workspaces are told only to template admins who asked for it, and not to
// those who did it.
func TestOptionalEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	template := w.Template("go", &provisionerpb.ImportResult{})
	w.User("bob")
	w.Workspace("ann", "quiet", template.ID)
	w.Daemon().Next().Finish(&provisionerpb.Result{})
	w.want("tom")
	w.turnOn("tom", notifications.WorkspaceCreated, notifications.WorkspaceManuallyUpdated)
	w.turnOn("bob", notifications.WorkspaceCreated, notifications.WorkspaceManuallyUpdated)
	ws := w.Workspace("ann", "dev", template.ID)
	w.Daemon().Next().Finish(&provisionerpb.Result{})
	w.want("tom", `Workspace "dev" created`)
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(&provisionerpb.Result{})
	w.want("tom") // the same version
	newer := w.Version(&template.ID, &provisionerpb.ImportResult{})
	for _, result := range []*provisionerpb.Result{{Error: "no disk"}, {}} {
		if _, err := w.As("ann").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart, TemplateVersionID: newer.ID}); err != nil {
			t.Fatal(err)
		}
		w.Daemon().Next().Finish(result)
	}
	w.want("tom", `Workspace "dev" of template "go" failed to start`)
	w.Workspace("tom", "mine", template.ID)
	w.Daemon().Next().Finish(&provisionerpb.Result{})
	w.want("tom") // did it
	w.want("bob") // asked, and administers no template
	w.want("ann")
}

// TestReport checks that template admins are told once a week of the builds that failed in the week before, and of no others.
func TestReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	template, good := w.Template("go", &provisionerpb.ImportResult{}), w.Template("rust", &provisionerpb.ImportResult{})
	// A week that is past, and messages of which this database has none: the report is of the week before this Wednesday.
	now := time.Date(2026, 3, 11, 15, 0, 0, 0, time.UTC)
	finish := func(workspace uuid.UUID, at time.Time, result *provisionerpb.Result) {
		t.Helper()
		w.Daemon().Next().Finish(result)
		w.Exec(`UPDATE provisioner_jobs SET completed_at = $2 WHERE id = (SELECT job_id FROM workspace_builds WHERE workspace_id = $1 ORDER BY build_number DESC LIMIT 1)`, workspace, at)
	}
	failed := &provisionerpb.Result{Error: "no disk"}
	week := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for i, at := range []time.Time{week.Add(-time.Second), week, week.Add(3 * 24 * time.Hour), week.AddDate(0, 0, 7).Add(-time.Second), week.AddDate(0, 0, 7)} {
		ws := w.Workspace("ann", "dev"+strconv.Itoa(i), template.ID)
		finish(ws.ID, at, failed)
	}
	ws := w.Workspace("ann", "good", template.ID)
	finish(ws.ID, week.Add(time.Hour), &provisionerpb.Result{})
	ws = w.Workspace("ann", "rusty", good.ID)
	finish(ws.ID, week.Add(time.Hour), &provisionerpb.Result{})
	w.titles("tom")
	w.User("olga")

	report := func(now time.Time) {
		t.Helper()
		if err := w.Notifications.Report(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		second := notifications.New(notifications.Options{DB: w.DB, Logger: w.Log, AccessURL: w.URL, Recorder: notifications.Config{}.Recorder()})
		if err := second.Report(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		second.Stop()
	}
	report(now)
	report(now.AddDate(0, 0, 4)) // still the same week
	w.deliver()
	got, err := w.As("tom").Inbox(t.Context(), "read_status=unread")
	if err != nil || len(got.Notifications) != 1 {
		t.Fatalf("got %+v, %v; want one report", got, err)
	}
	n := got.Notifications[0]
	if n.Title != `3 of 4 builds of template "go" failed last week` || n.TemplateID != notifications.WorkspaceBuildsFailedReport.ID {
		t.Errorf("title %q", n.Title)
	}
	for _, want := range []string{"2026-03-02", "2026-03-08", "ann/dev1 1, ann/dev2 1, ann/dev3 1"} {
		if !strings.Contains(n.Content, want) {
			t.Errorf("the report %q lacks %q", n.Content, want)
		}
	}
	if strings.Contains(n.Content, "dev0") || strings.Contains(n.Content, "dev4") || strings.Contains(n.Content, "good") {
		t.Errorf("the report %q names builds of other weeks or results", n.Content)
	}
	w.want("ann")
	w.titles("tom")
	report(now.AddDate(0, 0, 5)) // Monday
	w.want("tom", `1 of 1 builds of template "go" failed last week`)
}
