package signin_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/coderd/signin/signintest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ann is a user of the provider.
var ann = signintest.User{Subject: "s-ann", Username: "ann", Email: "ann@corp.example", Name: "Ann Example", Verified: true}

// world is a server with an OpenID provider, and with one owner, olga.
type world struct {
	*coderdtest.Server
	t        *testing.T
	provider *signintest.Provider
}

// newWorld starts a server; edit changes the configuration of the provider.
func newWorld(t *testing.T, edit ...func(*signin.OIDCConfig)) *world {
	t.Helper()
	w := &world{t: t}
	w.Server = coderdtest.New(t, func(o *coderd.Options) {
		w.provider = signintest.New(t, o.AccessURL)
		cfg := w.provider.Settings()
		for _, edit := range edit {
			edit(&cfg)
		}
		var err error
		if o.OIDC, err = signin.NewOIDC(cfg, o.AccessURL); err != nil {
			t.Fatal(err)
		}
	})
	w.User("olga")
	return w
}

// browser is a browser without a session.
type browser struct {
	*http.Client
	w *world
}

func (w *world) browser() *browser {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	transport := &http.Transport{}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &browser{&http.Client{Jar: jar, Transport: transport, Timeout: coderdtest.Patience}, w}
}

const callback = "/api/v2/users/oidc/callback"

// page is where a browser ends.
type page struct {
	at     *url.URL
	status int
	text   string // of the page, with the entities decoded that pages contain
}

func (p page) String() string { return p.at.String() + "\n" + p.text }

// open follows redirects to a page.
func (b *browser) open(address string) page {
	b.w.t.Helper()
	if !strings.HasPrefix(address, "http") {
		address = b.w.URL.String() + address
	}
	req, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodGet, address, nil)
	if err != nil {
		b.w.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html")
	return b.do(req)
}

func (b *browser) do(req *http.Request) page {
	b.w.t.Helper()
	resp, err := b.Do(req)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return page{resp.Request.URL, resp.StatusCode, strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(string(text))}
}

// stop returns the first address to which the browser would be redirected at which contains reports true.
func (b *browser) stop(address string, at func(*url.URL) bool) *url.URL {
	b.w.t.Helper()
	copied, found := *b.Client, (*url.URL)(nil)
	copied.CheckRedirect = func(req *http.Request, _ []*http.Request) error {
		if at(req.URL) {
			found = req.URL
			return http.ErrUseLastResponse
		}
		return nil
	}
	(&browser{&copied, b.w}).open(address)
	if found == nil {
		b.w.t.Fatalf("%s: no such redirect", address)
	}
	return found
}

// returns is the address with which the provider sends the browser back.
func returns(u *url.URL) bool { return u.Path == callback && u.Query().Has("code") }

// session returns the session in the browser's cookie, or "".
func (b *browser) session() secret.Token {
	for _, c := range b.Jar.Cookies(b.w.URL) {
		if c.Name == "coder_session_token" {
			return secret.Token(c.Value)
		}
	}
	return ""
}

// signIn signs a user in and returns a client with the session.
func (w *world) signIn(u signintest.User) *sdk.Client {
	w.t.Helper()
	w.provider.SignIn(u)
	b := w.browser()
	if p := b.open(callback); b.session() == "" {
		w.t.Fatalf("sign in %s: ended at %s", u.Username, p)
	}
	return w.With(b.session())
}

// refused tries to sign a user in, which must end with a page that contains the text, and without a session.
func (w *world) refused(u signintest.User, status int, text string) {
	w.t.Helper()
	w.provider.SignIn(u)
	b := w.browser()
	p := b.open(callback)
	if b.session() != "" {
		w.t.Fatalf("%s was signed in; want %q", u.Username, text)
	}
	if p.status != status || !strings.Contains(p.text, text) {
		w.t.Errorf("sign in %s: got %d %s\nwant %d with %q", u.Username, p.status, p, status, text)
	}
	if !strings.Contains(p.text, "Back to the sign-in page") {
		w.t.Errorf("sign in %s: the page shows no way back: %s", u.Username, p)
	}
}

func (w *world) me(c *sdk.Client) sdk.User {
	w.t.Helper()
	me, err := c.User(w.t.Context(), sdk.Me)
	if err != nil {
		w.t.Fatal(err)
	}
	return me
}

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	if err := w.DB.Pool.QueryRow(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func secretOf(text string) secret.Token { return secret.Token(text) }
