package extauth_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/extauth/extauthtest"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with a provider called "forge". Its sessions are two of ann's, one of bob's, and "inside", one of ann's
// that her workspace has.
type world struct {
	*coderdtest.Server
	*extauth.Service
	t        *testing.T
	opts     extauth.Options // for a second server
	signer   *signed.Signer
	provider *extauthtest.Provider
	tokens   map[string]secret.Token // of sessions, by name
}

// key returns the base64 encoding of 32 bytes.
func key(fill string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))
}

func keys(t *testing.T, text string) *keyring.Ring {
	t.Helper()
	ring, err := keyring.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// newWorld starts a server; more contains further settings of the provider, as alternating names and values.
func newWorld(t *testing.T, more ...string) *world {
	t.Helper()
	return newWorldAt(t, extauthtest.New(t), more...)
}

// newWorldAt is newWorld with a provider that is there.
func newWorldAt(t *testing.T, provider *extauthtest.Provider, more ...string) *world {
	t.Helper()
	w := &world{t: t, provider: provider}
	providers := w.configure(more...)
	w.Server = coderdtest.New(t, func(o *coderd.Options) { o.ExternalAuth, o.States = providers, keys(t, key("k")) })
	w.Service = w.Server.ExternalAuth
	w.tokens = map[string]secret.Token{"ann": w.Session("ann"), "ann2": w.Session("ann"), "bob": w.Session("bob"), "inside": w.Session("ann")}
	w.Exec(`UPDATE api_keys SET kind = 'workspace' WHERE id = $1`, w.tokens["inside"].Reveal()[:10])
	var err error
	if w.signer, err = signed.Load(t.Context(), w.DB); err != nil {
		t.Fatal(err)
	}
	w.opts = extauth.Options{DB: w.DB, Logger: w.Log, Keys: keys(t, key("k")), Signer: w.signer, AccessURL: w.URL, Providers: providers}
	return w
}

// configure returns the provider's configuration, with further settings as alternating names and values.
func (w *world) configure(more ...string) []extauth.Provider {
	w.t.Helper()
	env := []string{
		"CODER_EXTERNAL_AUTH_0_ID=forge", "CODER_EXTERNAL_AUTH_0_TYPE=custom", "CODER_EXTERNAL_AUTH_0_DISPLAY_NAME=The Forge",
		"CODER_EXTERNAL_AUTH_0_CLIENT_ID=" + extauthtest.ClientID, "CODER_EXTERNAL_AUTH_0_CLIENT_SECRET=" + extauthtest.ClientSecret,
		"CODER_EXTERNAL_AUTH_0_AUTH_URL=" + w.provider.URL + "/authorize", "CODER_EXTERNAL_AUTH_0_TOKEN_URL=" + w.provider.URL + "/token",
		"CODER_EXTERNAL_AUTH_0_VALIDATE_URL=" + w.provider.URL + "/user",
	}
	for i := 0; i < len(more); i += 2 {
		env = append(env, "CODER_EXTERNAL_AUTH_0_"+more[i]+"="+more[i+1])
	}
	providers, err := extauth.ParseEnv(env)
	if err != nil {
		w.t.Fatal(err)
	}
	return providers
}

func (w *world) as(name string) *sdk.Client { return w.With(w.tokens[name]) }

// browser is a browser with a session.
type browser struct {
	*http.Client
	w *world
}

func (w *world) browser(name string) *browser {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	transport := &http.Transport{}
	w.t.Cleanup(transport.CloseIdleConnections)
	b := &browser{&http.Client{Jar: jar, Transport: transport, Timeout: 30 * time.Second}, w}
	b.signIn(name)
	return b
}

// signIn replaces the browser's session.
func (b *browser) signIn(name string) {
	b.Jar.SetCookies(b.w.URL, []*http.Cookie{{Name: "coder_session_token", Value: b.w.tokens[name].Reveal(), Path: "/"}})
}

// open follows redirects to a page, and returns its address, text and status.
func (b *browser) open(address string) (at *url.URL, body string, status int) {
	b.w.t.Helper()
	if !strings.HasPrefix(address, "http") {
		address = b.w.URL.String() + address
	}
	resp, err := b.Get(address)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return resp.Request.URL, string(text), resp.StatusCode
}

// stop returns the address that the browser would visit next after the given number of redirects.
func (b *browser) stop(address string, after int) string {
	b.w.t.Helper()
	copied := *b.Client
	next := ""
	copied.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		next = req.URL.String()
		if len(via) >= after {
			return http.ErrUseLastResponse
		}
		return nil
	}
	resp, err := copied.Get(b.w.URL.String() + address)
	if err != nil {
		b.w.t.Fatal(err)
	}
	resp.Body.Close()
	return next
}

const callback = "/external-auth/forge/callback"

// link signs a user in at the provider.
func (w *world) link(name string) {
	w.t.Helper()
	if at, body, status := w.browser(name).open(callback); status != 200 || at.RequestURI() != "/external-auth/forge" {
		w.t.Fatalf("link %s: ended at %s with %d: %s", name, at, status, body)
	}
}

// token returns the token that a user has, or "" for none.
func (w *world) token(name string) string {
	w.t.Helper()
	c, err := w.ForProvider(w.t.Context(), w.User(strings.TrimSuffix(name, "2")), "forge")
	if err != nil {
		w.t.Fatalf("token of %s: %v", name, err)
	}
	return c.Token.Reveal()
}

// version returns a template version that asks for a provider.
func (w *world) version(provider string) uuid.UUID {
	w.t.Helper()
	_, version := w.TemplateRow()
	w.Exec(`INSERT INTO template_version_external_auth (template_version_id, provider_id, optional) VALUES ($1, $2, false)`, version, provider)
	return version
}
