package extauth_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// TestForeignState checks that a code and its state are valid only in the browser, and for the session, that began the
// sign-in.
func TestForeignState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mallory := w.browser("bob") // begins, and sends others the provider's answer
	answer := mallory.stop(callback, 2)
	if !strings.Contains(answer, "code=") || !strings.Contains(answer, "state=") {
		t.Fatalf("the provider sent the browser to %s", answer)
	}
	refused := func(what string, b *browser, address string) {
		t.Helper()
		at, _, _ := b.open(address)
		if at.Query().Get("failed") != "state" || at.Path != "/external-auth/forge" {
			t.Errorf("%s: ended at %s", what, at)
		}
		if got := w.token("ann") + w.token("bob"); got != "" {
			t.Fatalf("%s: somebody is linked", what)
		}
	}
	victim := w.browser("ann")
	refused("another user's state", victim, answer)
	victim.stop(callback, 1) // begins a sign-in of her own, and so has a cookie
	refused("another user's state during an own sign-in", victim, answer)
	for _, name := range []string{"ann2", "bob"} { // in the same browser, with its verifier
		b := w.browser("ann")
		answer := b.stop(callback, 2)
		b.signIn(name)
		refused("a sign-in of ann's after that of "+name, b, answer)
	}
	refused("another browser of the same session", w.browser("bob"), mallory.stop(callback, 2))

	for what, change := range map[string]func(url.Values){
		"no state":               func(q url.Values) { q.Del("state") },
		"a forged state":         func(q url.Values) { q.Set("state", q.Get("state")+"A") },
		"an empty state":         func(q url.Values) { q.Set("state", "") },
		"an error of no state":   func(q url.Values) { q.Del("state"); q.Set("error", "access_denied") },
		"of another's beginning": func(q url.Values) { q.Set("state", mustParse(t, victim.stop(callback, 2)).Query().Get("state")) },
	} {
		begun := w.browser("bob")
		answer := mustParse(t, begun.stop(callback, 2))
		q := answer.Query()
		change(q)
		answer.RawQuery = q.Encode()
		refused(what, begun, answer.String())
	}
	// The same answer is accepted unmodified: the modifications caused the refusals.
	begun := w.browser("bob")
	if begun.open(begun.stop(callback, 2)); w.token("bob") == "" {
		t.Error("an honest sign-in is refused")
	}
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestExpiredState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tc := range []struct {
		what, purpose string
		lifetime      time.Duration
		good          bool
	}{
		{"expired", "external auth", -signed.Leeway - time.Second, false},
		{"a token of the server's for something else", "app", time.Minute, false},
		{"the same, but for that", "external auth", time.Minute, true},
	} {
		b := w.browser("ann")
		answer := mustParse(t, b.stop(callback, 2))
		var begun map[string]any
		if err := w.signer.Verify("external auth", secret.Token(answer.Query().Get("state")), &begun); err != nil {
			t.Fatal(err)
		}
		state, err := w.signer.Sign(tc.purpose, begun, tc.lifetime)
		if err != nil {
			t.Fatal(err)
		}
		q := answer.Query()
		q.Set("state", state.Reveal())
		answer.RawQuery = q.Encode()
		at, _, _ := b.open(answer.String())
		if refused := at.Query().Get("failed") == "state"; refused == tc.good || tc.good != (w.token("ann") != "") {
			t.Errorf("%s: ended at %s", tc.what, at)
		}
	}
}

// TestForeignRedirect checks that a sign-in leads back only to this server, and starts only in a user's own session.
func TestForeignRedirect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, to := range []string{
		"https://evil.example", "//evil.example", `/\evil.example`, `\\evil.example`, "evil.example", "/\t/evil.example", "javascript:alert(1)",
		"http:evil.example", "@evil.example", "/" + strings.Repeat("a", 2000),
	} {
		if at, _, status := w.browser("ann").open(callback + "?redirect=" + url.QueryEscape(to)); status != http.StatusBadRequest {
			t.Errorf("redirect %q: ended at %s with %d", to, at, status)
		}
	}
	for name, want := range map[string]int{"nobody": http.StatusUnauthorized, "inside": http.StatusForbidden} {
		if _, _, status := w.browser(name).open(callback); status != want {
			t.Errorf("%s begins a sign-in: got %d, want %d", name, status, want)
		}
	}
}

// TestForeignPage checks that another site's page cannot make a browser link an account unnoticed: the user is shown a
// button.
func TestForeignPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for site, linked := range map[string]bool{"cross-site": false, "same-site": false, "same-origin": true, "none": true} {
		b := w.browser("ann")
		b.Transport = withHeader{b.Transport, site}
		at, _, _ := b.open(callback)
		if at.RequestURI() != "/external-auth/forge" || linked != (w.token("ann") != "") {
			t.Errorf("from %s: ended at %s, linked %t", site, at, !linked)
		}
		if _, err := w.as("ann").UnlinkExternalAuth(t.Context(), "forge"); linked != (err == nil) {
			t.Errorf("unlink: %v", err)
		}
	}
}

// withHeader declares where the first request of a navigation comes from, as browsers do; the return from the provider is
// cross-site.
type withHeader struct {
	http.RoundTripper
	site string
}

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Sec-Fetch-Site", h.site)
	if r.URL.Query().Has("state") {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	}
	return h.RoundTripper.RoundTrip(r)
}

// TestFailedSignIns checks that a sign-in that the provider or its user refuses is reported, and links nothing.
func TestFailedSignIns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser("ann")
	try := func(want string) {
		t.Helper()
		if at, _, _ := b.open(callback); at.Query().Get("failed") != want || w.token("ann") != "" {
			t.Errorf("ended at %s, want failed=%s and no link", at, want)
		}
	}
	w.provider.Deny(true)
	try("denied")
	w.provider.Deny(false)
	answer := b.stop(callback, 2)
	w.provider.Away(true)
	if at, _, _ := b.open(answer); at.Query().Get("failed") != "exchange" {
		t.Errorf("while the provider is away: ended at %s", at)
	}
	w.provider.Away(false)
	u := mustParse(t, b.stop(callback, 2))
	q := u.Query()
	q.Set("code", "made-up")
	u.RawQuery = q.Encode()
	if at, _, _ := b.open(u.String()); at.Query().Get("failed") != "exchange" {
		t.Errorf("a code that the provider does not know: ended at %s", at)
	}
	if w.token("ann") != "" {
		t.Error("something was linked")
	}
}

// TestVerifierStaysInTheBrowser checks that the verifier is only in a cookie that no script can read and that is sent to no
// other page.
func TestVerifierStaysInTheBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser("ann")
	to := b.stop(callback, 1)
	at := mustParse(t, w.URL.String()+callback)
	found := false
	for _, c := range b.Jar.Cookies(at) {
		if c.Name == "coder_external_auth_verifier" {
			found = true
			if strings.Contains(to, c.Value) || strings.Contains(w.Logged(), c.Value) {
				t.Error("the verifier travels")
			}
		}
	}
	if !found {
		t.Error("there is no cookie")
	}
	for _, c := range b.Jar.Cookies(w.URL) {
		if c.Name == "coder_external_auth_verifier" {
			t.Error("other pages get the verifier")
		}
	}
}
