package e2e_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/signin/signintest"
)

// browse opens an address of the server in a new browser, follows all redirects, and returns the session and the last page.
func (d *deployment) browse(path string) (session, page string) {
	d.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.url()+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html")
	resp, err := (&http.Client{Jar: jar, Timeout: settle}).Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, c := range jar.Cookies(req.URL) {
		if c.Name == "coder_session_token" {
			session = c.Value
		}
	}
	return session, string(text)
}

// TestSignInElsewhere: with an OpenID provider configured by the environment, a browser signs in, a terminal takes the session
// over from the browser, and a stranger is told why they may not.
func TestSignInElsewhere(t *testing.T) {
	t.Parallel()
	d := prepare(t)
	access, err := url.Parse(d.url())
	if err != nil {
		t.Fatal(err)
	}
	provider := signintest.New(t, access)
	d.extra = []string{
		"CODER_OIDC_ISSUER_URL=" + provider.URL, "CODER_OIDC_CLIENT_ID=" + signintest.ClientID, "CODER_OIDC_CLIENT_SECRET=" + signintest.ClientSecret,
		"CODER_OIDC_EMAIL_DOMAIN=corp.example", "CODER_OIDC_SCOPES=openid,profile,email,offline_access", "CODER_DISABLE_PASSWORD_AUTH=true",
	}
	d.begin() // ada is the owner, whose password works
	const callback = "/api/v2/users/oidc/callback"

	provider.SignIn(signintest.User{Subject: "1", Username: "grace", Email: "grace@corp.example", Name: "Grace Hopper", Verified: true})
	session, page := d.browse(callback)
	if session == "" {
		t.Fatalf("grace is not signed in: %s", page)
	}
	login := d.typesAs(t, "grace", "login", d.url())
	login.await(d.url() + "/cli-auth")
	login.await("Token")
	login.line("no token")
	login.await("it has 33 characters")
	login.line(session)
	login.end()
	if out, stderr, err := d.tryAs("grace", "whoami"); err != nil || !strings.Contains(out, "grace") {
		t.Errorf("whoami: %v\n%s%s", err, out, stderr)
	}

	provider.SignIn(signintest.User{Subject: "2", Username: "mallory", Email: "ada@example.com", Name: "M", Verified: true})
	if session, page := d.browse(callback); session != "" || !strings.Contains(page, "Addresses of example.com may not sign in here") {
		t.Errorf("a stranger: session %q, %s", session, page)
	}
	d.coder("users", "create", "--username", "pat", "--email", "pat@corp.example", "--password", password)
	if _, stderr, err := d.tryAs("pat", "login", d.url(), "--email", "pat@corp.example", "--password", password); err == nil || !strings.Contains(stderr, "switched off") {
		t.Errorf("a member's password: %v %s", err, stderr)
	}
}
