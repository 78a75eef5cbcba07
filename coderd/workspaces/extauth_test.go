package workspaces_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// needing returns a template that requires the login "github", or that optionally uses it.
func needing(optional bool) *provisionerpb.ImportResult {
	found := process()
	found.ExternalAuth = []*provisionerpb.ExternalAuth{{Id: "github", Optional: optional}}
	return found
}

// TestBuildsTakeLogins checks that users cannot make a workspace whose template requires a login without it, and that its builds get the token of
// its owner only.
func TestBuildsTakeLogins(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t, coderdtest.GitHub)
	template := w.Template("needs", needing(false))
	create := func() (sdk.Workspace, error) {
		return w.As("ann").CreateWorkspace(t.Context(), sdk.Me, sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "dev"})
	}
	_, err := create()
	f := fault.As(err)
	if f == nil || f.Code != fault.Conflict || !strings.Contains(f.Error(), w.URL.String()+"/external-auth/github") || len(f.Fields) != 1 || f.Fields[0].Field != "external_auth" {
		t.Errorf("ann creates without a login: %v", err)
	}
	if err := w.ExternalAuth.Link(t.Context(), w.User("olga"), "github", &oauth2.Token{AccessToken: "olgastoken"}); err != nil {
		t.Fatal(err)
	}
	// What others make for ann gets no logins, so it needs none.
	if _, err := w.As("olga").CreateWorkspace(t.Context(), "ann", sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "gift"}); err != nil {
		t.Fatal(err)
	}
	gift := w.Daemon().Next()
	if got := gift.GetWorkspaceBuild().GetMetadata().GetExternalAuthTokens(); len(got) != 0 {
		t.Errorf("olga's build for ann got %v", got)
	}
	gift.Finish(coderdtest.Built("s"))
	status := func(who string) sdk.TemplateVersionExternalAuth {
		t.Helper()
		got, err := w.As(who).TemplateVersionExternalAuth(t.Context(), template.ActiveVersionID)
		if err != nil || len(got) != 1 {
			t.Fatalf("logins as %s: %v, %v", who, got, err)
		}
		return got[0]
	}
	if got := status("ann"); got.Authenticated || got.DisplayName != "GitHub" || got.Type != "github" || got.AuthenticateURL != w.URL.String()+"/external-auth/github" {
		t.Errorf("before: %+v", got)
	}
	if err := w.ExternalAuth.Link(t.Context(), w.User("ann"), "github", &oauth2.Token{AccessToken: "annstoken"}); err != nil {
		t.Fatal(err)
	}
	if got := status("ann"); !got.Authenticated {
		t.Errorf("after: %+v", got)
	}
	ws, err := create()
	if err != nil {
		t.Fatal(err)
	}
	job := w.Daemon().Next()
	if got := job.GetWorkspaceBuild().GetMetadata().GetExternalAuthTokens(); len(got) != 1 || got["github"] != "annstoken" {
		t.Errorf("the build got %v", got)
	}
	job.Finish(coderdtest.Built("s"))
	if _, err := w.As("ann").UnlinkExternalAuth(t.Context(), "github"); err != nil {
		t.Fatal(err)
	}
	// A stop is always possible.
	w.Build("ann", ws.ID, sdk.TransitionStop)
	job = w.Daemon().Next()
	if got := job.GetWorkspaceBuild().GetMetadata().GetExternalAuthTokens(); len(got) != 0 {
		t.Errorf("the stop got %v", got)
	}
	job.Finish(coderdtest.Built("s"))
	if _, err := w.As("ann").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("start without the login: %v", err)
	}
}

// TestLoginIsOver checks that a token that has expired when the build's turn comes, and that cannot be renewed, fails the
// build, which tells the user what to do.
func TestLoginIsOver(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t, coderdtest.GitHub)
	template := w.Template("needs", needing(false))
	over := &oauth2.Token{AccessToken: "annstoken", RefreshToken: "annsrefresh", Expiry: time.Now().Add(-time.Second)}
	if err := w.ExternalAuth.Link(t.Context(), w.User("ann"), "github", over); err != nil {
		t.Fatal(err)
	}
	ws := w.Workspace("ann", "dev", template.ID)
	w.Daemon().Ready()
	testwait.Until(t, "the build ends", w.Ended(ws.ID))
	if got := w.Get(ws.ID).LatestBuild.Job; got.Status != sdk.JobFailed || !strings.Contains(got.Error, "/external-auth/github") || strings.Contains(got.Error, "annstoken") {
		t.Errorf("got %s: %q", got.Status, got.Error)
	}
}

// TestOptionalLogin checks that an optional login does not prevent a start.
func TestOptionalLogin(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t, coderdtest.GitHub)
	w.Workspace("ann", "dev", w.Template("likes", needing(true)).ID)
	if got := w.Daemon().Next().GetWorkspaceBuild().GetMetadata().GetExternalAuthTokens(); len(got) != 0 {
		t.Errorf("the build got %v", got)
	}
}
