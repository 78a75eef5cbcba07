package coderd_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/workspaces"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestAnnouncements checks what users are told of what policy does, and how they find it in their inbox.
func TestAnnouncements(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ann := w.User("ann")
	announcer := coderd.NewAnnouncer((notifications.Config{}).Recorder())
	workspace, template := uuid.New(), uuid.New()
	for _, a := range []workspaces.Announcement{
		{Action: sdk.ScheduledStop}, {Action: sdk.ScheduledStop, Done: true}, {Action: sdk.ScheduledStart}, {Action: sdk.ScheduledDormancy},
		{Action: sdk.ScheduledDormancy, Done: true}, {Action: sdk.ScheduledDelete}, {Action: sdk.ScheduledDelete, Done: true},
	} {
		a.UserID, a.WorkspaceID, a.TemplateID, a.WorkspaceName, a.Explanation = ann, workspace, template, "dev", "Because of its template."
		if err := w.DB.InTx(t.Context(), func(q *dbsqlc.Queries) error { return announcer.Announce(t.Context(), q, a) }); err != nil {
			t.Fatal(err)
		}
		if err := w.Notifications.Deliver(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	inbox := func(query string) (titles []string, last string) {
		t.Helper()
		got, err := w.As("ann").Inbox(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range got.Notifications {
			titles = append(titles, n.Title)
		}
		if len(titles) > 0 {
			last = got.Notifications[0].Content
		}
		return titles, last
	}
	titles, last := inbox("format=plaintext&targets=" + workspace.String())
	want := []string{`Workspace "dev" will be deleted`, `Workspace "dev" is dormant`, `Workspace "dev" becomes dormant soon`, `Workspace "dev" stops soon`}
	if diff := cmp.Diff(want, titles); diff != "" {
		t.Errorf("notifications, newest first (-want +got):\n%s", diff)
	}
	if last != "Your workspace dev will be deleted.\n\nBecause of its template." {
		t.Errorf("text %q", last)
	}
	if titles, _ := inbox("targets=" + uuid.NewString()); titles != nil {
		t.Errorf("about another object: %q", titles)
	}
	if titles, _ := inbox("templates=" + notifications.WorkspaceDormant.ID.String()); len(titles) != 1 {
		t.Errorf("of one template: %q", titles)
	}
}
