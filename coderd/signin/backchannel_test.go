package signin_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/signin/signintest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const logoutURI = "/api/v2/users/oidc/backchannel-logout"

// logoutClaims are those of a valid logout token for ann.
func (w *world) logoutClaims(id string) map[string]any {
	return map[string]any{
		"iss": w.provider.URL, "aud": signintest.ClientID, "iat": time.Now().Unix(), "exp": time.Now().Add(2 * time.Minute).Unix(), "jti": id, "sub": ann.Subject,
		"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}},
	}
}

// logout sends a logout token as a provider does, and returns the status and the answer.
func (w *world) logout(form url.Values) (int, string) {
	w.t.Helper()
	resp, err := http.PostForm(w.URL.String()+logoutURI, form)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := resp.Header.Get("Cache-Control"); got != "no-store" {
		w.t.Errorf("Cache-Control: %q", got)
	}
	return resp.StatusCode, string(text)
}

// TestBackchannelLogout: a token of the provider ends all sessions of its user at once, tells their holders, and leaves a row in the audit log. It
// ends nothing a second time, and no session of a later sign-in.
func TestBackchannelLogout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.signIn(ann), w.signIn(ann)
	bob := w.signIn(signintest.User{Subject: "s-bob", Username: "bob", Email: "bob@corp.example", Name: "Bob", Verified: true})
	token := w.provider.Sign(w.logoutClaims("one"))
	if status, text := w.logout(url.Values{"logout_token": {token}}); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	for _, c := range []*sdk.Client{one, two} {
		if _, err := c.User(t.Context(), sdk.Me); fault.CodeOf(err) != fault.Unauthenticated || !strings.Contains(fmt.Sprint(err), "you signed out at the identity provider") {
			t.Errorf("a session of ann's: %v", err)
		}
	}
	w.me(bob)
	if n := w.count(`SELECT count(*) FROM audit_logs WHERE actor = 'identity provider' AND action = 'logout' AND resource_target = 'ann' AND additional_fields->>'sessions' = '2'`); n != 1 {
		t.Errorf("%d rows in the audit log", n)
	}
	again := w.signIn(ann)
	if status, text := w.logout(url.Values{"logout_token": {token}}); status != http.StatusBadRequest || !strings.Contains(text, "used before") {
		t.Errorf("a token that was used: %d %s", status, text)
	}
	old := w.logoutClaims("two")
	old["iat"] = time.Now().Add(-2 * time.Minute).Unix()
	if status, text := w.logout(url.Values{"logout_token": {w.provider.Sign(old)}}); status != http.StatusOK {
		t.Errorf("a token of before the sign-in: %d %s", status, text)
	}
	stranger := w.logoutClaims("three")
	stranger["sub"] = "s-stranger"
	delete(stranger, "exp") // earlier drafts had none
	if status, text := w.logout(url.Values{"logout_token": {w.provider.Sign(stranger)}}); status != http.StatusOK {
		t.Errorf("a user who never signed in: %d %s", status, text)
	}
	w.me(again)
}

// TestForgedLogoutTokens: only a logout token of the provider, for this server, of now, signs users out.
func TestForgedLogoutTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	session := w.signIn(ann)
	n := 0
	refused := func(name string, form url.Values) {
		t.Helper()
		if status, text := w.logout(form); status < 400 || status >= 500 {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	for name, change := range map[string]func(c map[string]any){
		"another issuer":      func(c map[string]any) { c["iss"] = "https://evil.example" },
		"another application": func(c map[string]any) { c["aud"] = "another" },
		"another party":       func(c map[string]any) { c["aud"], c["azp"] = []string{signintest.ClientID, "another"}, "another" },
		"no event":            func(c map[string]any) { delete(c, "events") },
		"another event":       func(c map[string]any) { c["events"] = map[string]any{"https://evil.example/event": map[string]any{}} },
		"an event of null": func(c map[string]any) {
			c["events"] = map[string]any{"http://schemas.openid.net/event/backchannel-logout": nil}
		},
		"an event that is text": func(c map[string]any) {
			c["events"] = map[string]any{"http://schemas.openid.net/event/backchannel-logout": "x"}
		},
		"a nonce, as in an ID token": func(c map[string]any) { c["nonce"] = "n" },
		"no id":                      func(c map[string]any) { delete(c, "jti") },
		"a huge id":                  func(c map[string]any) { c["jti"] = strings.Repeat("j", 10_000) },
		"no time":                    func(c map[string]any) { delete(c, "iat") },
		"of the future":              func(c map[string]any) { c["iat"] = time.Now().Add(time.Hour).Unix() },
		"of yesterday":               func(c map[string]any) { c["iat"] = time.Now().Add(-24 * time.Hour).Unix() },
		"an end":                     func(c map[string]any) { c["exp"] = time.Now().Add(-2 * time.Minute).Unix() },
		"a session only":             func(c map[string]any) { delete(c, "sub"); c["sid"] = "s" },
	} {
		n++
		claims := w.logoutClaims(fmt.Sprint("bad", n))
		change(claims)
		refused(name, url.Values{"logout_token": {w.provider.Sign(claims)}})
	}
	good := w.provider.Sign(w.logoutClaims("good"))
	refused("no token", url.Values{})
	refused("no form", url.Values{"token": {good}})
	refused("no JWT", url.Values{"logout_token": {"x"}})
	refused("no signature", url.Values{"logout_token": {good[:strings.LastIndexByte(good, '.')+1]}})
	refused("endless", url.Values{"logout_token": {strings.Repeat("x", 1<<20)}})
	var given string
	for _, text := range w.provider.Given() { // a true ID token among them
		refused("another token", url.Values{"logout_token": {text}})
		given = text
	}
	if given == "" {
		t.Error("the provider has issued no token")
	}
	w.provider.Forge()
	refused("another key", url.Values{"logout_token": {w.provider.Sign(maps.Clone(w.logoutClaims("forged")))}})
	if resp, err := http.Get(w.URL.String() + logoutURI + "?logout_token=" + good); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	w.me(session)
}
