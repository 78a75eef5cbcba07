package signin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/coderd/signin/signintest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const password = "correct horse battery"

// patWith creates pat, who has a password, and signs pat in.
func (w *world) patWith() *sdk.Client {
	w.t.Helper()
	if _, err := w.As("olga").CreateUser(w.t.Context(), sdk.CreateUserRequest{Username: "pat", Email: "pat@corp.example", Password: password}); err != nil {
		w.t.Fatal(err)
	}
	return w.login("pat@corp.example", password)
}

func (w *world) login(email, password string) *sdk.Client {
	w.t.Helper()
	got, err := w.With("").Login(w.t.Context(), sdk.LoginRequest{Email: email, Password: password})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.With(secretOf(got.SessionToken))
}

// convert asks, in a browser with a session, to convert the account.
func (b *browser) convert(session *sdk.Client, req sdk.ConvertLoginRequest) page {
	b.w.t.Helper()
	text, err := json.Marshal(req)
	if err != nil {
		b.w.t.Fatal(err)
	}
	post, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodPost, b.w.URL.String()+"/api/v2/users/me/convert-login", bytes.NewReader(text))
	if err != nil {
		b.w.t.Fatal(err)
	}
	post.Header.Set("Coder-Session-Token", session.Token().Reveal())
	return b.do(post)
}

func TestConvert(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, pat := t.Context(), w.patWith()
	b, attacker := w.browser(), w.browser()
	for _, c := range []struct {
		req    sdk.ConvertLoginRequest
		status int
		want   string
	}{
		{sdk.ConvertLoginRequest{ToType: sdk.LoginOIDC, Password: "wrong"}, http.StatusBadRequest, "The password is wrong"},
		{sdk.ConvertLoginRequest{ToType: sdk.LoginGitHub, Password: password}, http.StatusBadRequest, "is not configured"},
		{sdk.ConvertLoginRequest{ToType: sdk.LoginNone, Password: password}, http.StatusBadRequest, "must be oidc or github"},
	} {
		if p := b.convert(pat, c.req); p.status != c.status || !strings.Contains(p.text, c.want) {
			t.Errorf("%+v: %s", c.req, p)
		}
	}
	p := b.convert(pat, sdk.ConvertLoginRequest{ToType: sdk.LoginOIDC, Password: password})
	if p.status != http.StatusCreated {
		t.Fatalf("convert: %s", p)
	}
	begun := decode[sdk.OAuthConversionResponse](t, p.text)
	merge := callback + "?oidc_merge_state=" + url.QueryEscape(begun.StateString)

	// The state binds no identity when it is opened in another browser.
	w.provider.SignIn(ann)
	if p := attacker.open(merge); attacker.session() != "" || !strings.Contains(p.text, "not started in this browser") {
		t.Errorf("in another browser: %s", p)
	}
	// An identity that is another account's cannot be bound.
	w.signIn(ann)
	w.provider.SignIn(ann)
	if p := b.open(merge); p.status != http.StatusConflict || !strings.Contains(p.text, "Another account already signs in with this identity") {
		t.Errorf("with another user's identity: %s", p)
	}
	p = b.convert(pat, sdk.ConvertLoginRequest{ToType: sdk.LoginOIDC, Password: password})
	begun = decode[sdk.OAuthConversionResponse](t, p.text)
	patAtProvider := signintest.User{Subject: "s-pat", Username: "p", Email: "private@mail.example", Name: "Pat", Verified: true}
	w.provider.SignIn(patAtProvider)
	b.open(callback + "?oidc_merge_state=" + url.QueryEscape(begun.StateString))
	if b.session() == "" {
		t.Fatal("the owner of the account cannot convert it")
	}
	me := w.me(w.With(b.session()))
	if me.Username != "pat" || me.LoginType != sdk.LoginOIDC || me.Email != "pat@corp.example" {
		t.Errorf("converted: %+v", me)
	}
	if _, err := pat.User(ctx, sdk.Me); err == nil || !strings.Contains(err.Error(), "now signs in with OpenID Connect") {
		t.Errorf("the session of before: %v", err)
	}
	if _, err := w.With("").Login(ctx, sdk.LoginRequest{Email: "pat@corp.example", Password: password}); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("the password of before: %v", err)
	}
	if me := w.me(w.signIn(patAtProvider)); me.Username != "pat" {
		t.Errorf("the next sign-in: %+v", me)
	}
	// Users convert only their own accounts; this includes owners.
	if p := w.browser().convertOf("ann", w.As("olga")); p.status != http.StatusForbidden {
		t.Errorf("an owner converts another's account: %s", p)
	}
}

func (b *browser) convertOf(user string, session *sdk.Client) page {
	b.w.t.Helper()
	post, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodPost, b.w.URL.String()+"/api/v2/users/"+user+"/convert-login", strings.NewReader(`{"to_type":"oidc","password":"x"}`))
	if err != nil {
		b.w.t.Fatal(err)
	}
	post.Header.Set("Coder-Session-Token", session.Token().Reveal())
	return b.do(post)
}

// TestOnlyOwnersUsePasswords: with passwords switched off, those of owners still work, so that a broken provider does not lock every user out.
func TestOnlyOwnersUsePasswords(t *testing.T) {
	t.Parallel()
	w := &world{t: t}
	w.Server = coderdtest.New(t, func(o *coderd.Options) { o.OnlyOwnersUsePasswords = true })
	ctx, nobody := t.Context(), w.With("")
	if _, err := nobody.CreateFirstUser(ctx, sdk.CreateFirstUserRequest{Username: "boss", Email: "boss@corp.example", Password: password, SetupCode: coderdtest.SetupCode.Reveal()}); err != nil {
		t.Fatal(err)
	}
	boss := w.login("boss@corp.example", password)
	if _, err := boss.CreateUser(ctx, sdk.CreateUserRequest{Username: "pat", Email: "pat@corp.example", Password: password}); err != nil {
		t.Fatal(err)
	}
	_, err := nobody.Login(ctx, sdk.LoginRequest{Email: "pat@corp.example", Password: password})
	if fault.CodeOf(err) != fault.Forbidden || !strings.Contains(err.Error(), "switched off") {
		t.Errorf("a member's password: %v", err)
	}
	if _, err := nobody.Login(ctx, sdk.LoginRequest{Email: "pat@corp.example", Password: "wrong"}); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("a wrong password must say no more than before: %v", err)
	}
	methods, err := nobody.AuthMethods(ctx)
	if err != nil || methods.Password.Enabled {
		t.Errorf("authmethods: %+v, %v", methods, err)
	}
}

// TestDormant: unused accounts become dormant, and wake in every way of signing in.
func TestDormant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	annSession := w.signIn(ann)
	w.patWith()
	w.User("idle")
	token, err := annSession.CreateToken(ctx, sdk.Me, sdk.CreateTokenRequest{TokenName: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	status := func(name string) sdk.UserStatus {
		t.Helper()
		u, err := w.As("olga").User(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return u.Status
	}
	sleep := func() {
		t.Helper()
		w.Exec("UPDATE users SET last_seen_at = now() - interval '91 days', created_at = now() - interval '92 days' WHERE username <> 'olga'")
		w.Exec("UPDATE users SET last_seen_at = NULL WHERE username = 'idle'")
		w.SignIn.MarkDormantNow(ctx)
		for _, name := range []string{"ann", "pat", "idle"} {
			if got := status(name); got != sdk.UserDormant {
				t.Fatalf("%s is %s after 91 days", name, got)
			}
		}
	}
	w.SignIn.MarkDormantNow(ctx)
	if status("ann") != sdk.UserActive || status("idle") != sdk.UserActive {
		t.Error("users of today are dormant")
	}
	sleep()
	if status("olga") != sdk.UserActive {
		t.Error("a user of today is dormant")
	}
	w.signIn(ann)
	w.login("pat@corp.example", password)
	if status("ann") != sdk.UserActive || status("pat") != sdk.UserActive {
		t.Errorf("after signing in: ann %s, pat %s", status("ann"), status("pat"))
	}
	sleep()
	w.Exec("UPDATE api_keys SET last_used_at = now() - interval '91 days'")
	w.me(w.With(secretOf(token.Key)))
	if status("ann") != sdk.UserActive {
		t.Errorf("after using a token: %s", status("ann"))
	}
}

// mailer keeps what was sent.
type mailer chan string

func (m mailer) Send(_ context.Context, _ uuid.UUID, _, text string) error {
	m <- text
	return nil
}

func TestPasscode(t *testing.T) {
	t.Parallel()
	sent := make(mailer, 10)
	w := &world{t: t}
	w.Server = coderdtest.New(t, func(o *coderd.Options) { o.Mailer = sent })
	ctx, nobody, pat := t.Context(), w.With(""), w.patWith()
	if _, err := w.As("olga").CreateUser(ctx, sdk.CreateUserRequest{Username: "sso", Email: "sso@corp.example", LoginType: sdk.LoginOIDC}); err != nil {
		t.Fatal(err)
	}
	request := func(email string) {
		t.Helper()
		if err := nobody.RequestOneTimePasscode(ctx, sdk.RequestOneTimePasscodeRequest{Email: email}); err != nil {
			t.Fatalf("%s: %v", email, err)
		}
	}
	// The answer is the same for unknown addresses and for users without a password.
	request("nobody@corp.example")
	request("sso@corp.example")
	request("PAT@corp.example")
	text := <-sent
	code := regexp.MustCompile(`otp=(\S+)`).FindStringSubmatch(text)
	if len(code) != 2 || !strings.Contains(text, w.URL.String()+"/reset-password/change?") {
		t.Fatalf("mail: %s", text)
	}
	change := func(email, code, password string) error {
		return nobody.ChangePasswordWithOneTimePasscode(ctx, sdk.ChangePasswordWithOneTimePasscodeRequest{Email: email, OneTimePasscode: code, Password: password})
	}
	const fresh = "an entirely new one"
	for _, wrong := range [][2]string{{"pat@corp.example", "guess"}, {"pat@corp.example", ""}, {"sso@corp.example", code[1]}, {"nobody@corp.example", code[1]}} {
		if err := change(wrong[0], wrong[1], fresh); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "passcode is wrong") {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	if err := change("pat@corp.example", code[1], "short"); fault.CodeOf(err) != fault.Invalid || strings.Contains(err.Error(), "passcode") {
		t.Errorf("a bad password: %v", err)
	}
	if err := change("pat@corp.example", code[1], fresh); err != nil {
		t.Fatal(err)
	}
	if err := change("pat@corp.example", code[1], fresh+"2"); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("the passcode was good twice: %v", err)
	}
	if _, err := pat.User(ctx, sdk.Me); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("a session of before: %v", err)
	}
	w.login("pat@corp.example", fresh)
	// One after another within a minute sends one message; an old passcode is worthless.
	w.Exec("UPDATE one_time_passcodes SET created_at = now() - interval '2 minutes'")
	request("pat@corp.example")
	second := regexp.MustCompile(`otp=(\S+)`).FindStringSubmatch(<-sent)[1]
	request("pat@corp.example")
	w.Exec("UPDATE one_time_passcodes SET expires_at = now() - interval '1 second'")
	if err := change("pat@corp.example", second, "yet another one"); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("an expired passcode: %v", err)
	}
	w.SignIn.Stop() // waits for requests that are being worked on
	if len(sent) != 0 {
		t.Errorf("unexpected mail: %s", <-sent)
	}
	if strings.Contains(w.Logged(), code[1]) {
		t.Error("the log contains the passcode")
	}

	without := newWorld(t)
	err := without.With("").RequestOneTimePasscode(ctx, sdk.RequestOneTimePasscodeRequest{Email: "pat@corp.example"})
	if fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "cannot send mail") {
		t.Errorf("without a mailer: %v", err)
	}
}

var _ signin.Mailer = mailer(nil)
