package extauth_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbtest"
	"github.com/codermesh/codermesh/coderd/extauth"
	"github.com/codermesh/codermesh/coderd/extauth/extauthtest"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/coderd/seal"
	"github.com/codermesh/codermesh/coderd/states"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with a provider called "forge". Its users' names are their tokens, too.
type world struct {
	*extauth.Service
	t        *testing.T
	db       *database.DB
	opts     extauth.Options
	sealer   *seal.Sealer
	provider *extauthtest.Provider
	api      *httptest.Server
	url      *url.URL
	mux      *httpapi.Mux

	mu     sync.Mutex
	log    bytes.Buffer          // guarded by mu
	actors map[string]rbac.Actor // by name; read only
}

func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

// key is the base64 of 32 bytes.
func key(fill string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))
}

func keys(t *testing.T, text string) *states.Keyring {
	t.Helper()
	ring, err := states.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// newWorld starts a server; more are settings of the provider, as name and value by turns.
func newWorld(t *testing.T, more ...string) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), provider: extauthtest.New(t), actors: map[string]rbac.Actor{}}
	for name, session := range map[string]string{"ann": "annskey", "ann2": "other", "bob": "bobskey", "inside": "wskey"} {
		user := strings.TrimSuffix(name, "2")
		actor := rbac.Actor{UserID: uuid.NewSHA1(uuid.Nil, []byte(user)), Username: user, KeyID: session}
		if name == "inside" {
			actor = rbac.Actor{UserID: uuid.NewSHA1(uuid.Nil, []byte("ann")), Username: "ann", KeyID: session, FromWorkspace: true}
		}
		w.actors[name] = actor
	}
	for _, name := range []string{"ann", "bob"} {
		w.exec(`INSERT INTO users (id, username, email) VALUES ($1, $2, $2 || '@example.com')`, w.actors[name].UserID, name)
	}
	var err error
	if w.sealer, err = seal.Load(t.Context(), w.db); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.mux = httpapi.NewMux(httpapi.Options{Logger: log, Authenticate: func(r *http.Request) (rbac.Actor, error) {
		token, _ := httpapi.Token(r)
		actor, ok := w.actors[token.Reveal()]
		if !ok {
			return actor, fault.New(fault.Unauthenticated, "You are not signed in.")
		}
		return actor, nil
	}})
	w.mux.Handle("GET /", rbac.Public, func(rw http.ResponseWriter, r *http.Request) error {
		_, err := io.WriteString(rw, "dashboard "+r.URL.RequestURI())
		return err
	})
	w.api = httptest.NewServer(w.mux)
	t.Cleanup(w.api.Close)
	if w.url, err = url.Parse(w.api.URL); err != nil {
		t.Fatal(err)
	}
	w.opts = extauth.Options{DB: w.db, Logger: log, Keys: keys(t, key("k")), Sealer: w.sealer, AccessURL: w.url, Providers: w.configure(more...)}
	w.Service = extauth.New(w.opts)
	w.Service.Routes(w.mux)
	t.Cleanup(w.Service.Close)
	return w
}

// configure is the provider's configuration, with more settings as name and value by turns.
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

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) id(name string) uuid.UUID { return w.actors[name].UserID }

func (w *world) as(name string) *sdk.Client {
	c := sdk.New(w.url, secret.Token(name), sdk.Options{})
	w.t.Cleanup(c.HTTP().CloseIdleConnections)
	return c
}

// browser is one with a session.
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

// signIn gives the browser another session.
func (b *browser) signIn(name string) {
	b.Jar.SetCookies(b.w.url, []*http.Cookie{{Name: "coder_session_token", Value: name, Path: "/"}})
}

// open follows redirects to a page, and returns its address and text.
func (b *browser) open(address string) (at *url.URL, body string, status int) {
	b.w.t.Helper()
	if !strings.HasPrefix(address, "http") {
		address = b.w.api.URL + address
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

// stop is the address that the browser would go to next, after so many redirects.
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
	resp, err := copied.Get(b.w.api.URL + address)
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

// token is what a user has, "" for none.
func (w *world) token(name string) string {
	w.t.Helper()
	c, err := w.ForProvider(w.t.Context(), w.id(name), "forge")
	if err != nil {
		w.t.Fatalf("token of %s: %v", name, err)
	}
	return c.Token.Reveal()
}

// version is a template version that asks for a provider.
func (w *world) version(provider string) uuid.UUID {
	w.t.Helper()
	org, err := w.db.GetDefaultOrganization(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	file, job, version := uuid.New(), uuid.New(), uuid.New()
	w.exec(`INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ($1, 'x', 'application/x-tar', '', $2)`, file, w.id("ann"))
	w.exec(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id) VALUES ($1, $2, $3, 'template_version_import', $4)`, job, org.ID, w.id("ann"), file)
	w.exec(`INSERT INTO template_versions (id, organization_id, job_id, name, created_by) VALUES ($1, $2, $3, 'v1', $4)`, version, org.ID, job, w.id("ann"))
	w.exec(`INSERT INTO template_version_external_auth (template_version_id, provider_id, optional) VALUES ($1, $2, false)`, version, provider)
	return version
}
