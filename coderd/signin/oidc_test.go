package signin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/coderd/signin/signintest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	methods, err := w.With("").AuthMethods(t.Context())
	if err != nil || !methods.OIDC.Enabled || methods.OIDC.SignInText != "The provider" || methods.Github.Enabled || !methods.Password.Enabled {
		t.Errorf("authmethods: %+v, %v", methods, err)
	}

	// The first sign-in creates the account and returns to the page that asked.
	w.provider.SignIn(ann)
	b := w.browser()
	if p := b.open(callback + "?redirect=" + url.QueryEscape("/templates?x=1")); p.at.RequestURI() != "/templates?x=1" {
		t.Fatalf("the sign-in ended at %s", p)
	}
	me := w.me(w.With(b.session()))
	if me.Username != "ann" || me.Email != ann.Email || me.Name != ann.Name || me.LoginType != sdk.LoginOIDC || len(me.Roles) != 0 {
		t.Errorf("new account: %+v", me)
	}
	lt, err := w.With(b.session()).LoginType(t.Context(), sdk.Me)
	if err != nil || lt.LoginType != sdk.LoginOIDC {
		t.Errorf("login type: %+v, %v", lt, err)
	}
	claims, err := w.With(b.session()).OIDCClaims(t.Context())
	if err != nil || string(claims.Claims["sub"]) != `"s-ann"` || string(claims.Claims["email"]) != `"ann@corp.example"` {
		t.Errorf("claims: %s, %v", claims.Claims, err)
	}

	// The identity is the subject: a new address and username at the provider change nothing but the address.
	moved := ann
	moved.Email, moved.Username = "ann@new.example", "somebody"
	again := w.me(w.signIn(moved))
	if again.ID != me.ID || again.Username != "ann" || again.Email != moved.Email {
		t.Errorf("the second sign-in: %+v", again)
	}

	// Nothing of the sign-in is logged or stored in plain text.
	for _, token := range append(w.provider.Given(), signintest.ClientSecret) {
		if strings.Contains(w.Logged(), token) {
			t.Errorf("the log contains a token of the provider")
		}
	}
	for _, token := range w.provider.Given() {
		if n := w.count("SELECT count(*) FROM external_auth_links WHERE position($1::bytea IN tokens) > 0", []byte(token)); n != 0 {
			t.Errorf("a token is stored in plain text")
		}
	}
	if n := w.count("SELECT count(*) FROM external_auth_links WHERE user_id = $1 AND refreshable", me.ID); n != 1 {
		t.Errorf("%d refresh tokens are kept", n)
	}
}

// TestUsernames: every user gets a valid name of their own.
func TestUsernames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, c := range []struct{ claim, email, want string }{
		{"Jürgen.Müller", "a@corp.example", "J-rgen-M-ller"},
		{"carl@corp.example", "b@corp.example", "carl"},
		{"carl", "c@corp.example", "carl-2"},
		{"CARL", "d@corp.example", "CARL-3"},
		{"", "eve.smith@corp.example", "eve-smith"},
		{"me", "f@corp.example", "f"},
		{"日本", "日本@corp.example", ""},
		{strings.Repeat("long-", 20), "g@corp.example", "long-long-long-long-long-long-lo"},
	} {
		u := signintest.User{Subject: "s" + string(rune('a'+i)), Username: c.claim, Email: c.email, Name: "X", Verified: true}
		if c.want == "" {
			continue // not an address that mail systems accept
		}
		if c.claim == "" {
			u.Username = "?"
		}
		if got := w.me(w.signIn(u)).Username; got != c.want {
			t.Errorf("username for %q: got %q, want %q", c.claim, got, c.want)
		}
	}
}

// TestHostileTokens: an ID token that is not for this server and this browser signs nobody in, and the page says what is wrong.
func TestHostileTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		name   string
		tamper func(map[string]any)
		want   string
	}{
		{"nonce", func(c map[string]any) { c["nonce"] = "another" }, "sent an ID token of another sign-in"},
		{"no nonce", func(c map[string]any) { delete(c, "nonce") }, "sent an ID token of another sign-in"},
		{"audience", func(c map[string]any) { c["aud"] = []string{"another"} }, "issued the ID token to another application"},
		{"authorized party", func(c map[string]any) {
			c["aud"] = []string{signintest.ClientID, "another"}
			c["azp"] = "another"
		}, "issued the ID token to another application"},
		{"issuer", func(c map[string]any) { c["iss"] = "https://evil.example" }, `another issuer, "https://evil.example"`},
		{"expired", func(c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() }, "has expired already"},
		{"not yet valid", func(c map[string]any) { c["nbf"] = time.Now().Add(time.Hour).Unix() }, "is not valid yet"},
		{"access token", func(c map[string]any) { c["at_hash"] = "AAAA" }, "does not belong to its access token"},
		{"no subject", func(c map[string]any) { c["sub"] = "" }, ""},
		{"times of the wrong type", func(c map[string]any) { c["exp"] = "tomorrow" }, "The identity provider"},
	} {
		w.provider.Tamper(c.tamper)
		w.refused(ann, http.StatusUnauthorized, c.want)
	}
	w.provider.Tamper(func(c map[string]any) { c["exp"] = time.Now().Add(-10 * time.Second).Unix() })
	w.signIn(ann) // clocks may differ a little
	w.provider.Tamper(nil)
	w.provider.Forge()
	w.refused(ann, http.StatusUnauthorized, "wrong signature")
}

// TestHostileCode: a code is good once, and only in the browser that began the sign-in.
func TestHostileCode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider.SignIn(ann)
	victim, attacker := w.browser(), w.browser()
	stolen := victim.stop(callback, returns)
	if p := attacker.open(stolen.String()); attacker.session() != "" || !strings.Contains(p.text, "not started in this browser") {
		t.Errorf("the attacker's browser: %s", p)
	}
	// Also with a sign-in of the attacker's own: neither the state nor the code of another sign-in fits.
	own := attacker.stop(callback, returns)
	mixed := *own
	q := own.Query()
	q.Set("code", stolen.Query().Get("code"))
	mixed.RawQuery = q.Encode()
	if p := attacker.open(mixed.String()); attacker.session() != "" || p.status != http.StatusUnauthorized || !strings.Contains(p.text, "does not accept the sign-in's code") {
		t.Errorf("the victim's code with the attacker's state: %s", p)
	}
	if p := victim.open(stolen.String()); victim.session() == "" {
		t.Errorf("the victim's own browser: %s", p)
	}
	// A replayed return is refused: the browser's verifier is gone, and the provider knows the code as used.
	fresh := w.browser()
	back := fresh.stop(callback, returns)
	if fresh.open(back.String()); fresh.session() == "" {
		t.Fatal("the owner of a code cannot use it")
	}
	replay := w.browser()
	replay.Jar.SetCookies(w.URL, nil)
	if p := replay.open(back.String()); replay.session() != "" || p.status != http.StatusUnauthorized {
		t.Errorf("a replayed return: %s", p)
	}
	for _, query := range []string{"?code=x&state=x", "?state=", "?error=access_denied&state=x"} {
		if p := w.browser().open(callback + query); p.status != http.StatusUnauthorized {
			t.Errorf("%s: %s", query, p)
		}
	}
	// A sign-in returns to this server only, and pages of other sites cannot begin one.
	if p := w.browser().open(callback + "?redirect=https://evil.example"); p.status != http.StatusBadRequest {
		t.Errorf("redirect to another site: %s", p)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL.String()+callback, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	b := w.browser()
	if p := b.do(req); b.session() != "" || p.at.Path != "/login" {
		t.Errorf("begun by another site: %s", p)
	}
}

// TestTakeover: an address alone never opens an account.
func TestTakeover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, olga := t.Context(), w.As("olga")
	for _, u := range []sdk.CreateUserRequest{
		{Username: "pat", Email: "pat@corp.example", LoginType: sdk.LoginPassword, Password: "a good password"},
		{Username: "none", Email: "none@corp.example", LoginType: sdk.LoginNone},
		{Username: "ready", Email: "ready@corp.example", LoginType: sdk.LoginOIDC},
	} {
		if _, err := olga.CreateUser(ctx, u); err != nil {
			t.Fatal(err)
		}
	}
	evil := signintest.User{Subject: "evil", Username: "evil", Name: "E", Verified: true}
	for _, email := range []string{"pat@corp.example", "PAT@corp.example", "none@corp.example", "olga@example.com"} {
		evil.Email = email
		w.refused(evil, http.StatusForbidden, "belongs to an account that does not sign in with OpenID Connect")
	}
	evil.Email, evil.Verified = "ready@corp.example", false
	w.provider.UserInfo(func(c map[string]any) { c["email_verified"] = false })
	w.refused(evil, http.StatusForbidden, "is not verified at the identity provider")
	w.provider.UserInfo(func(c map[string]any) { delete(c, "email_verified") })
	w.refused(evil, http.StatusForbidden, "--oidc-ignore-email-verified")
	w.provider.UserInfo(nil)

	if n := w.count("SELECT count(*) FROM audit_logs WHERE action = 'login' AND status_code = 403"); n == 0 {
		t.Error("refused sign-ins leave no row in the audit log")
	}

	// The owner of the address, verified, gets the account that was prepared; a second identity with the address does not.
	ready := signintest.User{Subject: "s-ready", Username: "other", Email: "ready@corp.example", Name: "Ready", Verified: true}
	if me := w.me(w.signIn(ready)); me.Username != "ready" {
		t.Errorf("the prepared account: %+v", me)
	}
	evil.Verified = true
	w.refused(evil, http.StatusForbidden, "belongs to an account of another user at the identity provider")

	// A user cannot sign in past a suspension, nor after deletion: then the identity gets a new account.
	me := w.me(w.signIn(ready))
	if _, err := olga.SuspendUser(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
	w.refused(ready, http.StatusUnauthorized, "Your account is suspended")
	if err := olga.DeleteUser(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
	if again := w.me(w.signIn(ready)); again.ID == me.ID {
		t.Error("a deleted account came back")
	}
	// An address that another account has is not stored at a sign-in.
	moved := ready
	moved.Email = "pat@corp.example"
	if got := w.me(w.signIn(moved)); got.Email != "ready@corp.example" {
		t.Errorf("the account took the address %s", got.Email)
	}
	// Nobody sets a password for an account that has none.
	err := w.signIn(ready).UpdateUserPassword(ctx, sdk.Me, sdk.UpdateUserPasswordRequest{Password: "another good one"})
	if fault.CodeOf(err) != fault.Invalid {
		t.Errorf("set a password: %v", err)
	}
}

func TestIgnoreEmailVerified(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *signin.OIDCConfig) { c.IgnoreEmailVerified = true })
	if _, err := w.As("olga").CreateUser(t.Context(), sdk.CreateUserRequest{Username: "ready", Email: "ready@corp.example", LoginType: sdk.LoginOIDC}); err != nil {
		t.Fatal(err)
	}
	carl := signintest.User{Subject: "s-carl", Username: "carl", Email: "carl@corp.example", Name: "C"}
	w.signIn(carl)
	evil := signintest.User{Subject: "evil", Username: "evil", Email: "ready@corp.example", Name: "E"}
	w.provider.UserInfo(func(c map[string]any) { c["email_verified"] = "false" })
	w.refused(evil, http.StatusForbidden, "has not verified that it is yours")
	w.provider.UserInfo(func(c map[string]any) { delete(c, "email_verified") })
	if me := w.me(w.signIn(evil)); me.Username != "ready" { // the operator vouches for the addresses
		t.Errorf("the prepared account: %+v", me)
	}
}

func TestWhoMaySignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *signin.OIDCConfig) { c.EmailDomains = []string{"corp.example", "@Other.example"} })
	w.signIn(ann)
	bob := signintest.User{Subject: "s-bob", Username: "bob", Email: "bob@OTHER.example", Name: "Bob", Verified: true}
	w.signIn(bob)
	bob.Email = "bob@corp.example.evil.example"
	w.refused(bob, http.StatusForbidden, "Addresses of corp.example.evil.example may not sign in here")

	closed := newWorld(t, func(c *signin.OIDCConfig) { c.AllowSignups, c.SignupsDisabledText = false, "Call extension 12 <now>." })
	closed.refused(ann, http.StatusForbidden, "Call extension 12 <now>.")
	if _, err := closed.As("olga").CreateUser(t.Context(), sdk.CreateUserRequest{Username: "ann", Email: ann.Email, LoginType: sdk.LoginOIDC}); err != nil {
		t.Fatal(err)
	}
	closed.signIn(ann)

	empty := newWorld(t)
	empty.Exec("DELETE FROM users")
	empty.refused(ann, http.StatusForbidden, "This deployment has no users yet")
}

// TestClaims: claims of the wrong type, or none, give a message; they never sign somebody else in.
func TestClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *signin.OIDCConfig) { c.EmailField, c.UsernameField, c.NameField = "mail", "login", "full" })
	info := func(c map[string]any) { c["mail"], c["login"], c["full"] = "ann@corp.example", "annie", "Ann E." }
	w.provider.UserInfo(info)
	if me := w.me(w.signIn(ann)); me.Username != "annie" || me.Name != "Ann E." {
		t.Errorf("with other fields: %+v", me)
	}
	for _, c := range []struct {
		name  string
		value any
		want  string
	}{
		{"mail", 5, `claim "mail" must be text, not a number`},
		{"mail", []string{"a@b.example"}, `claim "mail" must be text, not a list`},
		{"login", map[string]any{"x": 1}, `claim "login" must be text, not an object`},
		{"full", true, `claim "full" must be text, not a truth value`},
		{"full", strings.Repeat("x", 5000), `claim "full" has more than 1024 bytes`},
		{"full", "a\x00b", `claim "full" contains a NUL character`},
		{"email_verified", "yes", "The identity provider"},
	} {
		w.provider.UserInfo(func(claims map[string]any) { info(claims); claims[c.name] = c.value })
		status := http.StatusBadRequest
		if c.name == "email_verified" {
			status = http.StatusUnauthorized // the library does not read the answer
		}
		w.refused(ann, status, c.want)
	}
	w.provider.UserInfo(func(claims map[string]any) { info(claims); delete(claims, "mail") })
	w.refused(ann, http.StatusForbidden, "did not send an email address")
	w.provider.UserInfo(func(claims map[string]any) { info(claims); claims["sub"] = "s-bob" })
	w.refused(ann, http.StatusUnauthorized, "answered about another user")

	// Claims that the database cannot hold, or that are too large, are left out.
	w.provider.UserInfo(func(claims map[string]any) {
		info(claims)
		claims["nul"], claims["big"], claims["groups"] = "\x00", strings.Repeat("x", 70_000), []string{"a", "b"}
	})
	got, err := w.signIn(ann).OIDCClaims(t.Context())
	if err != nil || got.Claims["nul"] != nil || got.Claims["big"] != nil || string(got.Claims["groups"]) != `["a", "b"]` && string(got.Claims["groups"]) != `["a","b"]` {
		t.Errorf("kept claims: %v, %v", got, err)
	}
}

// TestProviderAway: while the provider does not answer the page says so, and the log has the cause; the server works on.
func TestProviderAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider.Away(true)
	w.refused(ann, http.StatusServiceUnavailable, "does not answer")
	w.provider.Away(false)
	w.signIn(ann)
	w.provider.Answer("invalid_client")
	w.refused(ann, http.StatusConflict, "does not accept this server")
	w.provider.Answer("server_error")
	w.refused(ann, http.StatusUnauthorized, `"server_error"`)

	other := newWorld(t, func(c *signin.OIDCConfig) { c.IssuerURL += "/" })
	other.refused(ann, http.StatusConflict, "calls itself")
}
