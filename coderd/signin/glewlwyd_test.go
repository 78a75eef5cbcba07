package signin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/coderd/signin/signintest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestGlewlwyd signs users in at a provider that others wrote and Debian ships: PKCE is required, refresh tokens rotate, renewals bring no
// ID token. The groups there become groups here, and a revoked refresh token ends the sessions.
func TestGlewlwyd(t *testing.T) {
	t.Parallel()
	w := &world{t: t}
	var g *signintest.Glewlwyd
	w.Server = coderdtest.New(t, func(o *coderd.Options) {
		g = signintest.StartGlewlwyd(t, o.AccessURL)
		cfg := g.Settings()
		cfg.AllowedGroups = []string{"devs", "ops"}
		var err error
		if o.OIDC, err = signin.NewOIDC(cfg, o.AccessURL); err != nil {
			t.Fatal(err)
		}
		o.ClaimSync = idpsync.Initial{Groups: sdk.GroupSyncSettings{Field: "groups", AutoCreate: true}}
	})
	w.User("olga")
	ctx := t.Context()
	grace := signintest.GlewlwydUser{Username: "grace", Password: "correct horse", Name: "Grace Hopper", Email: "grace@corp.example", Groups: []string{"devs", "ops"}, Nickname: "ghopper", Verified: "yes"}
	mallory := signintest.GlewlwydUser{Username: "mallory", Password: "battery staple", Name: "M", Email: "m@corp.example", Groups: []string{"others"}, Nickname: "mallory", Verified: "yes"}
	unproven := signintest.GlewlwydUser{Username: "ulla", Password: "battery staple", Name: "U", Email: "grace@corp.example", Groups: []string{"devs"}, Nickname: "ulla", Verified: "no"}
	for _, u := range []signintest.GlewlwydUser{grace, mallory, unproven} {
		g.Add(u)
	}
	toProvider := func(u *url.URL) bool { return strings.HasPrefix(u.String(), g.Issuer()+"/auth") }
	enter := func(u signintest.GlewlwydUser) (*browser, page) {
		t.Helper()
		b := w.browser()
		return b, b.open(g.SignIn(u, b.stop(callback, toProvider)).String())
	}
	b, p := enter(grace)
	if b.session() == "" {
		t.Fatalf("grace is not signed in: %s", p)
	}
	session := w.With(b.session())
	if me := w.me(session); me.Username != "ghopper" || me.Email != "grace@corp.example" || me.Name != "Grace Hopper" || me.LoginType != sdk.LoginOIDC {
		t.Errorf("account %+v", me)
	}
	w.is("groups", w.groupsOf("ghopper"), "devs ops")
	for _, row := range []struct {
		u    signintest.GlewlwydUser
		want string
	}{{mallory, "You are not in a group that may sign in here"}, {unproven, "is not verified"}} {
		if b, p := enter(row.u); b.session() != "" || p.status != http.StatusForbidden || !strings.Contains(p.text, row.want) {
			t.Errorf("%s: %d %s, want %q", row.u.Username, p.status, p, row.want)
		}
	}

	// Each renewal spends a refresh token.
	grace.Groups = []string{"ops"}
	g.Set(grace)
	for range 2 {
		if err := w.SignIn.CheckNow(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.is("groups after a change at the provider", w.groupsOf("ghopper"), "ops")
	w.me(session)

	g.Revoke(grace)
	if err := w.SignIn.CheckNow(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := session.User(ctx, sdk.Me); fault.CodeOf(err) != fault.Unauthenticated || !strings.Contains(err.Error(), "identity provider no longer confirms") {
		t.Errorf("after the provider revoked the refresh token: %v", err)
	}
	if b, p := enter(grace); b.session() == "" {
		t.Errorf("grace cannot sign in again: %s", p)
	}
}
