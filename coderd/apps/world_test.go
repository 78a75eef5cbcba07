package apps_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/coderd/apps"
	"github.com/codermesh/codermesh/coderd/coderdtest"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/coderd/seal"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	dashboard = "http://coder.example.com"
	wildcard  = "*.apps.example.com"
)

// world is a server with a workspace of ann's whose agent listens on loopback ports of this machine.
type world struct {
	*coderdtest.Server
	*apps.Service
	t      *testing.T
	server *httptest.Server
	app    *httptest.Server // what listens in the workspace
	port   int
	agent  uuid.UUID

	mu      sync.Mutex
	users   map[string]rbac.Actor // by name, which is the token and the key too
	running bool
	away    bool // the agent is not connected
	seen    *http.Request
	answer  http.HandlerFunc // the app's answer; nil: says hello
}

func (w *world) Authenticate(r *http.Request) (rbac.Actor, error) {
	token, _ := httpapi.Token(r)
	return w.who(token.Reveal())
}

func (w *world) AuthenticateToken(_ context.Context, token secret.Token) (rbac.Actor, error) {
	return w.who(token.Reveal())
}

func (w *world) Holder(_ context.Context, key string) (rbac.Actor, error) { return w.who(key) }

func (w *world) Admitted(_ context.Context, ids ...uuid.UUID) ([]uuid.UUID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return nil, nil
	}
	return ids, nil
}

func (w *world) DialAgent(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error) {
	w.mu.Lock()
	away := w.away
	w.mu.Unlock()
	if agent != w.agent || away {
		return nil, fault.New(fault.Unavailable, "The workspace's agent is not connected.")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
}

func newWorld(t *testing.T, edit func(*apps.Options)) *world {
	t.Helper()
	w := &world{t: t, Server: coderdtest.New(t), users: map[string]rbac.Actor{}, running: true}
	w.app = httptest.NewServer(http.HandlerFunc(w.serveApp))
	w.port = w.app.Listener.Addr().(*net.TCPAddr).Port
	for name, roles := range map[string][]string{"ann": nil, "bob": nil, "olga": {rbac.RoleOwner}} {
		w.users[name] = rbac.Actor{UserID: w.User(name), Username: name, KeyID: name, Roles: roles, Memberships: []rbac.Membership{{Organization: w.Org}}}
	}
	w.agent = w.AgentRow(w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobSucceeded))
	w.addApp("code", "owner", fmt.Sprintf("http://localhost:%d/", w.port))
	w.addApp("team", "authenticated", fmt.Sprintf("http://localhost:%d/", w.port))
	w.addApp("org", "organization", fmt.Sprintf("http://localhost:%d/", w.port))
	w.addApp("all", "public", fmt.Sprintf("http://localhost:%d/", w.port))
	w.addApp("start", "owner", fmt.Sprintf("http://127.0.0.1:%d/lab/tree?folder=/home", w.port))
	w.addApp("elsewhere", "public", "http://169.254.169.254/latest")
	sealer, err := seal.Load(t.Context(), w.DB)
	if err != nil {
		t.Fatal(err)
	}
	access, err := url.Parse(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	opts := apps.Options{
		DB: w.DB, Logger: log, Sealer: sealer, AccessURL: access, WildcardHost: wildcard,
		Accounts: w, Agents: w, Mesh: w,
	}
	if edit != nil {
		edit(&opts)
	}
	w.Service = apps.New(opts)
	mux := httpapi.NewMux(httpapi.Options{Logger: log, Authenticate: w.Authenticate, AccessURL: access})
	w.Routes(mux)
	mux.Handle("/", rbac.Public, func(rw http.ResponseWriter, r *http.Request) error {
		_, err := fmt.Fprintf(rw, "dashboard %s", r.URL.Path)
		return err
	})
	w.server = httptest.NewServer(w.Handler(mux))
	t.Cleanup(func() {
		w.Stop()
		w.Stop()
		w.server.CloseClientConnections()
		w.server.Close()
		w.app.CloseClientConnections()
		w.app.Close()
	})
	return w
}

func (w *world) addApp(slug, share, address string) {
	w.t.Helper()
	w.Exec(`INSERT INTO workspace_apps (id, agent_id, slug, display_name, sharing_level, url) VALUES ($1, $2, $3, $3, $4, $5)`, uuid.New(), w.agent, slug, share, address)
}

func (w *world) who(token string) (rbac.Actor, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	actor, ok := w.users[token]
	if !ok {
		return rbac.Actor{}, fault.New(fault.Unauthenticated, "You are not signed in.")
	}
	return actor, nil
}

// serveApp is the program in the workspace.
func (w *world) serveApp(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.seen = r.Clone(context.Background())
	answer := w.answer
	w.mu.Unlock()
	if answer != nil {
		answer(rw, r)
		return
	}
	fmt.Fprintf(rw, "app %s", r.URL.RequestURI())
}

// got returns the last request that the app received, and forgets it; nil if there was none.
func (w *world) got() *http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.seen
	w.seen = nil
	return r
}

func (w *world) answers(h http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = h
}

// browser is a browser with its own cookies that resolves every host to the server.
type browser struct {
	t      *testing.T
	client *http.Client
	jar    http.CookieJar
	last   []string // addresses visited on the way
}

// browser returns a browser signed in as a user; "" leaves it signed out.
func (w *world) browser(user string) *browser {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	b := &browser{t: w.t, jar: jar}
	addr := w.server.Listener.Addr().String()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	w.t.Cleanup(transport.CloseIdleConnections)
	b.client = &http.Client{Transport: transport, Jar: jar, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		b.last = append(b.last, r.URL.String())
		if len(via) > 8 {
			return fmt.Errorf("redirected in circles: %v", b.last)
		}
		return nil
	}}
	if user != "" {
		u, err := url.Parse(dashboard)
		if err != nil {
			w.t.Fatal(err)
		}
		jar.SetCookies(u, []*http.Cookie{{Name: "coder_session_token", Value: user, Path: "/", HttpOnly: true}})
	}
	return b
}

// open visits an address as a person does.
func (b *browser) open(address string) (int, string, http.Header) {
	b.t.Helper()
	return b.send("GET", address, http.Header{
		"Accept": {"text/html,*/*"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}, "Sec-Fetch-Site": {"none"},
	})
}

// send makes a request with the browser's cookies.
func (b *browser) send(method, address string, header http.Header) (int, string, http.Header) {
	b.t.Helper()
	b.last = nil
	r, err := http.NewRequestWithContext(b.t.Context(), method, address, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header = header
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

// host returns an app's address.
func host(slug string) string {
	return "http://" + slug + "--main--dev--ann" + strings.TrimPrefix(wildcard, "*")
}
