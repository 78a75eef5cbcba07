package coderd_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/coderdtest"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/secret"
)

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// scoped returns a client with a limited token of a user.
func scoped(s *coderdtest.Server, user string, scopes, allow []string) *sdk.Client {
	s.T.Helper()
	made, err := s.As(user).CreateToken(s.T.Context(), sdk.Me, sdk.CreateTokenRequest{Scopes: scopes, AllowList: allow})
	if err != nil {
		s.T.Fatal(err)
	}
	return s.With(secret.Token(made.Key))
}

// TestScopedTokenOnEveryRoute sends an owner's token that may only read workspaces to every route: it changes nothing, and reads only
// workspaces, its own account and what needs no more than sign-in.
func TestScopedTokenOnEveryRoute(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	made, err := s.As("olga").CreateToken(t.Context(), sdk.Me, sdk.CreateTokenRequest{Scopes: []string{"workspace:read"}})
	if err != nil {
		t.Fatal(err)
	}
	readable := []string{
		rbac.Needs(rbac.Read, rbac.Workspace).String(), rbac.Needs(rbac.Read, rbac.WorkspaceBuild).String(), rbac.Needs(rbac.Read, rbac.Agent).String(),
		rbac.Needs(rbac.Read, rbac.User).String(), rbac.Needs(rbac.Read, rbac.Organization).String(), rbac.SignedIn.String(),
	}
	tried := 0
	for _, route := range s.Mux.Routes() {
		method, path, ok := strings.Cut(route.Pattern, " ")
		if !ok || route.Permission.IsPublic() {
			continue
		}
		if method == http.MethodGet && slices.Contains(readable, route.Permission.String()) {
			continue
		}
		tried++
		r := httptest.NewRequest(method, wildcard.ReplaceAllString(path, "me"), strings.NewReader("{}"))
		r.Header.Set(sdk.SessionHeader, made.Key)
		w := httptest.NewRecorder()
		s.Mux.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s (%s): got %d %s, want 403", route.Pattern, route.Permission, w.Code, w.Body)
		}
	}
	if tried < 50 {
		t.Errorf("only %d routes were tried", tried)
	}
}

// TestScopesOfWorkspaces checks what limited tokens do to workspaces, beside what a whole token does.
func TestScopesOfWorkspaces(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ctx := t.Context()
	template := s.Template("docker", nil)
	one, _ := s.Running("ann", "one", template.ID)
	two, _ := s.Running("ann", "two", template.ID)
	code := func(what string, err error, want fault.Code) {
		t.Helper()
		if want == "" && err != nil || want != "" && fault.CodeOf(err) != want {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	names := func(c *sdk.Client) string {
		t.Helper()
		list, err := c.Workspaces(ctx, sdk.WorkspacesQuery{})
		if err != nil {
			t.Error(err)
		}
		var out []string
		for _, w := range list.Workspaces {
			out = append(out, w.Name)
		}
		slices.Sort(out)
		if list.Count != len(out) {
			t.Errorf("%d workspaces, count %d", len(out), list.Count)
		}
		return strings.Join(out, " ")
	}
	build := func(c *sdk.Client, w uuid.UUID, transition sdk.Transition) error {
		_, err := c.CreateBuild(ctx, w, sdk.CreateBuildRequest{Transition: transition})
		return err
	}

	reads := scoped(s, "ann", []string{"workspace:read"}, nil)
	if got := names(reads); got != "one two" {
		t.Errorf("workspace:read lists %q", got)
	}
	_, err := reads.User(ctx, sdk.Me)
	code("workspace:read reads the own account", err, "")
	for _, transition := range []sdk.Transition{sdk.TransitionStart, sdk.TransitionStop, sdk.TransitionDelete} {
		code("workspace:read: "+string(transition), build(reads, one.ID, transition), fault.Forbidden)
	}

	stops := scoped(s, "ann", []string{"workspace:read", "workspace:stop"}, nil)
	code("workspace:stop starts", build(stops, one.ID, sdk.TransitionStart), fault.Forbidden)
	code("workspace:stop deletes", build(stops, one.ID, sdk.TransitionDelete), fault.Forbidden)

	only := scoped(s, "ann", []string{"workspace:*", "template:read"}, []string{"workspace:" + one.ID.String()})
	if got := names(only); got != "one" {
		t.Errorf("a token for one lists %q", got)
	}
	_, err = only.Workspace(ctx, one.ID)
	code("a token for one reads it", err, "")
	_, err = only.Workspace(ctx, two.ID)
	code("a token for one reads two", err, fault.NotFound)
	code("a token for one stops two", build(only, two.ID, sdk.TransitionStop), fault.NotFound)
	_, err = only.Template(ctx, template.ID)
	code("a token for one reads a template", err, fault.Forbidden)
	_, err = only.CreateWorkspace(ctx, sdk.Me, sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "three"})
	if err == nil {
		t.Error("a token for one creates another workspace")
	}

	whole := s.As("ann")
	code("a session stops", build(whole, two.ID, sdk.TransitionStop), "")
	code("workspace:stop stops", build(stops, one.ID, sdk.TransitionStop), "")
}

// TestTokensOfTokens checks that a limited token makes no token or session that may do more.
func TestTokensOfTokens(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ctx := t.Context()
	maker := scoped(s, "ann", []string{"api_key:create", "api_key:read", "workspace:read"}, nil)
	for what, req := range map[string]sdk.CreateTokenRequest{
		"everything": {}, "all": {Scopes: []string{"all"}}, "another scope": {Scopes: []string{"template:read"}}, "a wider scope": {Scopes: []string{"workspace:*"}},
		"apps": {Scope: "application_connect"},
	} {
		if _, err := maker.CreateToken(ctx, sdk.Me, req); fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s: %v, want forbidden", what, err)
		}
	}
	if _, err := maker.CreateAPIKey(ctx, sdk.Me); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a session: %v, want forbidden", err)
	}
	made, err := maker.CreateToken(ctx, sdk.Me, sdk.CreateTokenRequest{Scopes: []string{"workspace:read"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.With(secret.Token(made.Key)).Workspaces(ctx, sdk.WorkspacesQuery{}); err != nil {
		t.Errorf("a narrower token: %v", err)
	}
}

// TestScopesOnTheMesh checks that only a token with workspace:ssh joins the mesh, and reaches only what it may.
func TestScopesOnTheMesh(t *testing.T) {
	t.Parallel()
	s := coderdtest.Start(t)
	for scope, want := range map[string]fault.Code{"workspace:read": fault.Forbidden, "application_connect": fault.Forbidden, "template:*": fault.Forbidden} {
		made, err := s.As("ann").CreateToken(t.Context(), sdk.Me, sdk.CreateTokenRequest{Scopes: []string{scope}})
		if err != nil {
			t.Fatal(err)
		}
		if got := coderdtest.Join(t, s.URL, coderdtest.AsUser(made.Key)).Refusal(); got != want {
			t.Errorf("%s: %q, want %q", scope, got, want)
		}
	}
	made, err := s.As("ann").CreateToken(t.Context(), sdk.Me, sdk.CreateTokenRequest{Scopes: []string{"workspace:ssh"}})
	if err != nil {
		t.Fatal(err)
	}
	s.Join(coderdtest.AsUser(made.Key))
}
