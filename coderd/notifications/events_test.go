package notifications_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func (w *world) want(user string, titles ...string) {
	w.T.Helper()
	if diff := cmp.Diff(append([]string{}, titles...), w.titles(user)); diff != "" {
		w.T.Errorf("notifications of %s (-want +got):\n%s", user, diff)
	}
}

// TestAccounts checks who is told of changes of accounts.
func TestAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.User("olga")
	second, tom := w.User("otto"), w.User("tom")
	w.Exec(`UPDATE users SET roles = '{owner}' WHERE id = $1`, second)
	w.titles("olga")
	bob, err := w.As("olga").CreateUser(t.Context(), sdk.CreateUserRequest{Username: "bob", Email: "bob@example.com", Password: "a long passphrase 1"})
	if err != nil {
		t.Fatal(err)
	}
	w.want("otto", `User account "bob" created`)
	w.want("olga") // did it
	w.want("tom")  // does not manage users
	for range 2 {  // the second time changes nothing
		if _, err := w.As("olga").SuspendUser(t.Context(), bob.ID.String()); err != nil {
			t.Fatal(err)
		}
	}
	w.want("otto", `User account "bob" suspended`)
	if got := w.mail.subjects("bob@example.com"); !cmp.Equal(got, []string{"Your account was suspended"}) {
		t.Errorf("mail to bob: %q", got)
	}
	if _, err := w.As("olga").ActivateUser(t.Context(), bob.ID.String()); err != nil {
		t.Fatal(err)
	}
	w.want("otto", `User account "bob" activated`)
	if err := w.As("olga").DeleteUser(t.Context(), bob.ID.String()); err != nil {
		t.Fatal(err)
	}
	w.want("otto", `User account "bob" deleted`)
	w.want("tom")
	if err := w.Users.EndSessions(t.Context(), tom, "the provider refuses"); err != nil {
		t.Fatal(err)
	}
	w.deliver()
	if n := w.count(`SELECT count(*) FROM inbox_notifications WHERE user_id = $1 AND title = 'Sign in again'`, tom); n != 1 {
		t.Errorf("a user whose sign-in ended got %d notifications", n)
	}
}

// TestRollback checks that an event whose transaction fails is never told.
func TestRollback(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.User("olga")
	otto := w.User("otto")
	w.Exec(`UPDATE users SET roles = '{owner}' WHERE id = $1`, otto)
	w.titles("otto")
	req := sdk.CreateUserRequest{Username: "bob", Email: "bob@example.com", Password: "a long passphrase 1"}
	if _, err := w.As("olga").CreateUser(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if _, err := w.As("olga").CreateUser(t.Context(), req); err == nil {
		t.Fatal("two users have one name")
	}
	w.want("otto", `User account "bob" created`)
}

// TestTemplates checks who is told of the end of a template.
func TestTemplates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	template, other := w.Template("go", &provisionerpb.ImportResult{}), w.Template("rust", &provisionerpb.ImportResult{})
	w.Workspace("ann", "dev", template.ID)
	w.User("bob")
	w.User("olga")
	message := "Use rust."
	for range 2 { // the second message is no news
		if _, err := w.As("tom").UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{DeprecationMessage: &message}); err != nil {
			t.Fatal(err)
		}
	}
	w.want("ann", `Template "go" is deprecated`)
	w.want("bob")
	if err := w.As("tom").DeleteTemplate(t.Context(), other.ID); err != nil {
		t.Fatal(err)
	}
	w.want("olga", `Template "rust" deleted`)
	w.want("tom")
	w.want("ann")
}

// TestBuilds checks who is told how a build ended.
func TestBuilds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	template := w.Template("go", &provisionerpb.ImportResult{})
	w.User("olga")
	failed := &provisionerpb.Result{Error: "no disk"}
	ws := w.Workspace("ann", "dev", template.ID)
	w.Daemon().Next().Finish(failed)
	w.want("tom", `Workspace "dev" of template "go" failed to start`)
	w.want("ann") // saw it
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(failed)
	w.want("tom") // once a day
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Exec(`UPDATE workspace_builds SET reason = 'autostart' WHERE workspace_id = $1 AND build_number = 3`, ws.ID)
	w.Daemon().Next().Finish(failed)
	w.want("ann", `Automatic start of workspace "dev" failed`)
	w.want("tom")

	newer := w.Version(&template.ID, &provisionerpb.ImportResult{})
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Exec(`UPDATE workspace_builds SET reason = 'autostart', template_version_id = $2 WHERE workspace_id = $1 AND build_number = 4`, ws.ID, newer.ID)
	w.Daemon().Next().Finish(&provisionerpb.Result{})
	w.want("ann", `Workspace "dev" was updated`)
	w.Build("olga", ws.ID, sdk.TransitionDelete)
	w.Daemon().Next().Finish(&provisionerpb.Result{})
	w.want("ann", `Workspace "dev" deleted`)
	mine := w.Workspace("ann", "mine", template.ID)
	w.Daemon().Next().Finish(&provisionerpb.Result{})
	w.Build("ann", mine.ID, sdk.TransitionDelete)
	w.Daemon().Next().Finish(&provisionerpb.Result{})
	w.want("ann")
	w.want("olga")
}

// TestSharing checks that users are told once of what is shared with them.
func TestSharing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	template := w.Template("go", &provisionerpb.ImportResult{})
	ws := w.Workspace("ann", "dev", template.ID)
	bob := w.User("bob")
	for _, role := range []string{sdk.RoleUse, sdk.RoleAdmin} {
		if err := w.As("ann").UpdateWorkspaceACL(t.Context(), ws.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{bob.String(): role}}); err != nil {
			t.Fatal(err)
		}
	}
	w.want("bob", `Workspace "dev" was shared with you`)
	w.want("ann")
}
