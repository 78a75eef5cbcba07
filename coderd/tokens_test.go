package coderd_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
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
		rbac.Needs(rbac.Read, rbac.User).String(), rbac.Needs(rbac.Read, rbac.Organization).String(), rbac.AnyToken.String(),
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

// anyToken are the routes that a token with limited scopes reads whatever its scopes are, and why.
var anyToken = map[string]string{
	"GET /api/v2/entitlements":                 "the same for everybody",
	"GET /api/v2/experiments":                  "the same for everybody",
	"GET /api/v2/experiments/available":        "the same for everybody",
	"GET /api/v2/deployment/ssh":               "the same for everybody",
	"GET /api/v2/deployment/ssh-gateway":       "the same for everybody",
	"GET /api/v2/deployment/ssh-host-ca":       "the same for everybody",
	"GET /api/v2/deployment/wireguard-gateway": "the same for everybody",
	"GET /api/v2/auth/scopes":                  "the same for everybody",
	"GET /api/v2/updatecheck":                  "the same for everybody",
	"GET /api/v2/licenses":                     "empty",
	"GET /api/v2/tasks":                        "empty",
	"GET /api/v2/applications/host":            "the same for everybody",
	"GET /api/v2/regions":                      "the same for everybody",
	"GET /api/v2/mesh/peers":                   "lists what the token's scopes read",
	"GET /api/v2/events/lifecycle":             "sends what the token's scopes read",
	"GET /api/v2/events":                       "sends what the token's scopes read",
}

// scopeKinds are the kinds of objects that the scopes of a type are about, where they do not have its name.
var scopeKinds = map[string][]rbac.Resource{
	"workspace":          {rbac.Workspace, rbac.WorkspaceBuild, rbac.Agent, rbac.Mesh},
	"template":           {rbac.Template, rbac.TemplateVersion},
	"api_key":            {rbac.APIKey},
	"git_ssh_key":        {rbac.SSHKey},
	"external_auth":      {rbac.ExternalAuth},
	"user_secret":        {rbac.UserSecret},
	"user_ssh_key":       {rbac.UserSSHKey},
	"user_device":        {rbac.UserDevice},
	"provisioner_daemon": {rbac.ProvisionerDaemon},
	"provisioner_jobs":   {rbac.ProvisionerJob},
	"file":               {rbac.File},
	"inbox_notification": {rbac.Notification},
	"deployment":         {rbac.Deployment, rbac.Mesh},
}

// bundleTypes are the types of scopes that bundles contain.
var bundleTypes = map[string][]string{
	"application_connect": {"workspace"}, "coder:application_connect": {"workspace"},
	"coder:workspaces.create": {"workspace", "template"}, "coder:workspaces.operate": {"workspace", "template"}, "coder:workspaces.delete": {"workspace"},
	"coder:workspaces.access": {"workspace"}, "coder:templates.build": {"template", "file", "provisioner_jobs"}, "coder:templates.author": {"template", "file", "provisioner_jobs"},
	"coder:apikeys.manage_self": {"api_key"},
}

// TestWhatEachScopeReaches walks all routes with an owner's tokens of each scope: a token reaches the routes about the objects of its
// scopes, reads whose token it is, and reads what anyToken lists.
func TestWhatEachScopeReaches(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	listed := map[string]bool{}
	for _, name := range rbac.Scopes() {
		scope, err := rbac.NewScope([]string{name}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !scope.Limited() {
			continue
		}
		types := bundleTypes[name]
		if types == nil {
			of, _, _ := strings.Cut(name, ":")
			types = []string{of}
		}
		token := rbac.Actor{UserID: s.User("olga"), Roles: []string{rbac.RoleOwner}, Scope: scope}
		for _, route := range s.Mux.Routes() {
			method, _, ok := strings.Cut(route.Pattern, " ")
			if !ok || route.Permission.IsPublic() || route.Permission.Check(token) != nil || !route.Permission.Names(method) {
				continue
			}
			resource := route.Permission.Resource()
			switch {
			case resource == "":
				listed[route.Pattern] = true
			case route.Permission == rbac.Needs(rbac.Read, rbac.User), route.Permission == rbac.Needs(rbac.Read, rbac.Organization):
			case !slices.ContainsFunc(types, func(of string) bool {
				return slices.Contains(scopeKinds[of], resource) || of == strings.ReplaceAll(strings.ToLower(string(resource)), " ", "_")
			}):
				t.Errorf("%s reaches %s (%s)", name, route.Pattern, route.Permission)
			}
		}
	}
	for pattern := range anyToken {
		if !listed[pattern] {
			t.Errorf("anyToken lists %s, which no limited token reaches", pattern)
		}
	}
	// What other servers serve is refused here, to every token with the same sentence.
	made, err := s.As("olga").CreateToken(t.Context(), sdk.Me, sdk.CreateTokenRequest{Scopes: []string{"workspace:read"}})
	if err != nil {
		t.Fatal(err)
	}
	for pattern := range listed {
		if anyToken[pattern] != "" {
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		r := httptest.NewRequest(method, wildcard.ReplaceAllString(path, "me"), nil)
		r.Header.Set(sdk.SessionHeader, made.Key)
		w := httptest.NewRecorder()
		s.Mux.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound {
			t.Errorf("a limited token reaches %s, which anyToken does not list: %d %s", pattern, w.Code, w.Body)
		}
	}
}

// TestInboxNeedsItsScope is an attacker's attempt to read messages and claims with tokens for something else.
func TestInboxNeedsItsScope(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	for scope, want := range map[string]int{
		"workspace:read": http.StatusForbidden, "application_connect": http.StatusForbidden, "user:read": http.StatusForbidden, "inbox_notification:read": http.StatusOK,
	} {
		made, err := s.As("ann").CreateToken(t.Context(), sdk.Me, sdk.CreateTokenRequest{Scopes: []string{scope}})
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]int{"/api/v2/notifications/inbox": want, "/api/v2/users/oidc-claims": http.StatusForbidden, "/api/v2/users/me": http.StatusOK} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set(sdk.SessionHeader, made.Key)
			w := httptest.NewRecorder()
			s.Mux.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s with %s: %d %s, want %d", path, scope, w.Code, w.Body, want)
			}
		}
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
