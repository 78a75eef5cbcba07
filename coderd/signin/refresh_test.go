package signin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/coderd/signin/signintest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestRefusedWithoutBody: some providers refuse a refresh token with status 400 alone.
func TestRefusedWithoutBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	session := w.signIn(ann)
	w.provider.Answer(signintest.Mute)
	if err := w.SignIn.CheckNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := session.User(t.Context(), sdk.Me); fault.CodeOf(err) != fault.Unauthenticated || !strings.Contains(err.Error(), "no longer confirms your sign-in") {
		t.Errorf("after the provider refused: %v", err)
	}
}

// TestRefused: when the provider no longer renews a sign-in, the user's sessions end, also those that the CLI created, and their
// holders learn why. Sessions of others and tokens live on.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	annSession := w.signIn(ann)
	key, err := annSession.CreateAPIKey(ctx, sdk.Me)
	if err != nil {
		t.Fatal(err)
	}
	token, err := annSession.CreateToken(ctx, sdk.Me, sdk.CreateTokenRequest{TokenName: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	bob := ann
	bob.Subject, bob.Username, bob.Email = "s-bob", "bob", "bob@corp.example"
	bobSession := w.signIn(bob)

	check := func() {
		t.Helper()
		if err := w.SignIn.CheckNow(ctx); err != nil {
			t.Fatal(err)
		}
	}
	check()
	if n := w.provider.Renewals(); n != 2 {
		t.Errorf("%d renewals for two users", n)
	}
	w.me(annSession)

	// What is no refusal ends nothing: an outage, and a mistake in the server's own configuration.
	w.provider.Away(true)
	if err := w.SignIn.CheckNow(ctx); err != nil {
		t.Fatal(err)
	}
	w.provider.Away(false)
	for _, code := range []string{"invalid_client", "server_error", signintest.Page} {
		w.provider.Answer(code)
		check()
	}
	w.provider.Answer("")
	w.me(annSession)

	w.provider.Answer("invalid_grant")
	w.Exec("UPDATE api_keys SET expires_at = now() - interval '1 hour' WHERE kind = 'session' AND user_id = $1", w.User("bob"))
	before := w.provider.Renewals()
	check()
	if n := w.provider.Renewals() - before; n != 1 {
		t.Errorf("%d questions: users without sessions must not be asked about", n)
	}
	for _, session := range []*sdk.Client{annSession, w.With(secretOf(key.Key))} {
		_, err := session.User(ctx, sdk.Me)
		if fault.CodeOf(err) != fault.Unauthenticated || !strings.Contains(err.Error(), "the identity provider no longer confirms your sign-in") {
			t.Errorf("after the provider refused: %v", err)
		}
	}
	if _, err := bobSession.User(ctx, sdk.Me); err == nil || strings.Contains(err.Error(), "identity provider") {
		t.Errorf("an expired session: %v", err)
	}
	w.me(w.With(secretOf(token.Key)))
	check() // nothing is left to ask about
	if n := w.provider.Renewals() - before; n != 1 {
		t.Errorf("%d questions after the sessions ended", n)
	}
	w.provider.Answer("")
	w.me(w.signIn(ann)) // and everything works again
	check()
}

// TestTwoServers: of two servers that check at the same time, none spends a refresh token twice.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var second *coderd.Server
	other := coderdtest.New(t, func(o *coderd.Options) {
		cfg := w.provider.Settings()
		oidc, err := signin.NewOIDC(cfg, w.URL)
		if err != nil {
			t.Fatal(err)
		}
		o.DB, o.States, o.OIDC = w.DB, w.States, oidc
	})
	second = other.Server
	session := w.signIn(ann)
	for range 5 {
		failed := make(chan error, 2)
		for _, s := range []*coderd.Server{w.Server.Server, second} {
			go func() { failed <- s.SignIn.CheckNow(t.Context()) }()
		}
		for range 2 {
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
		}
		w.me(session)
	}
}

// TestBuildToken: a template that names the access token of its owner's sign-in gets a valid one at each build; others get none.
func TestBuildToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.signIn(ann)
	named := w.Template("named", &provisionerpb.ImportResult{NamesOwnerOidcAccessToken: true})
	other := w.Template("other", &provisionerpb.ImportResult{})
	offered := func(template sdk.Template, name string) string {
		t.Helper()
		w.Workspace("ann", name, template.ID)
		job := w.Daemon().Next()
		token := job.GetWorkspaceBuild().GetMetadata().GetOwnerOidcAccessToken()
		job.Finish(coderdtest.Built("s"))
		return token
	}
	first := offered(named, "one")
	if given := w.provider.Given(); first == "" || !strings.Contains(strings.Join(given, " "), first) {
		t.Errorf("the template got %q", first)
	}
	if got := offered(other, "two"); got != "" {
		t.Error("a template that does not name the token got it")
	}
	w.Exec("UPDATE external_auth_links SET expires_at = now() + interval '1 minute'")
	second := offered(named, "three")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.provider.URL+"/userinfo", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+second)
	if p := w.browser().do(req); second == first || p.status != http.StatusOK {
		t.Errorf("the token was not renewed before the build: %s", p)
	}
	// The sign-in is nothing that users link, list or hand out.
	ann := w.As("ann")
	all, err := ann.ExternalAuths(t.Context())
	if err != nil || len(all.Links)+len(all.Providers) != 0 {
		t.Errorf("linked accounts: %+v, %v", all, err)
	}
	if _, err := ann.UnlinkExternalAuth(t.Context(), "sign-in:oidc"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("unlink the sign-in: %v", err)
	}
	if _, err := w.ExternalAuth.ForProvider(t.Context(), w.User("ann"), "sign-in:oidc"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("ask for the sign-in's token: %v", err)
	}
}
