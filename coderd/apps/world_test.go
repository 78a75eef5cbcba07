package apps_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/apps"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/netio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	dashboard = "http://coder.example.com"
	wildcard  = "*.apps.example.com"
	unused    = 1 // a port on which nothing listens: agents accept its connections and reset them
)

// world is a server with a running workspace of ann's whose agent has ports of this machine.
type world struct {
	*coderdtest.Server
	*apps.Service
	t                *testing.T
	app              *httptest.Server // what listens in the workspace
	port             int
	workspace, agent uuid.UUID
	page             string // the dashboard's page

	mu     sync.Mutex
	seen   *http.Request
	answer http.HandlerFunc // the app's answer; nil: says hello
}

// newWorld creates a world whose agent is on the mesh.
func newWorld(t *testing.T, edit ...func(*coderd.Options)) *world {
	t.Helper()
	w := newWorldWithoutAgent(t, edit...)
	agent := w.Join(coderdtest.AsAgent(coderdtest.Token(w.agent).Reveal()))
	agent.Serve(uint16(w.port), func(conn net.Conn) {
		up, err := net.Dial("tcp", w.app.Listener.Addr().String())
		if err == nil {
			netio.Pipe(conn, up)
		}
	})
	agent.Serve(unused, func(conn net.Conn) { netio.Abort(conn) })
	return w
}

func newWorldWithoutAgent(t *testing.T, edit ...func(*coderd.Options)) *world {
	t.Helper()
	w := &world{t: t}
	w.app = httptest.NewServer(http.HandlerFunc(w.serveApp))
	t.Cleanup(func() {
		w.app.CloseClientConnections()
		w.app.Close()
	})
	w.port = w.app.Listener.Addr().(*net.TCPAddr).Port
	hosts := func(o *coderd.Options) {
		o.AccessURL, o.WildcardHost = &url.URL{Scheme: "http", Host: strings.TrimPrefix(dashboard, "http://")}, wildcard
	}
	w.Server = coderdtest.New(t, append([]func(*coderd.Options){hosts}, edit...)...)
	w.Service = w.Apps
	if err := w.Mesh.Start(http.NotFoundHandler()); err != nil {
		t.Fatal(err)
	}
	w.workspace, w.agent = w.RunningRow("ann", "dev")
	w.addApp("code", "owner", fmt.Sprintf("http://localhost:%d/", w.port))
	w.addApp("team", "authenticated", fmt.Sprintf("http://localhost:%d/", w.port))
	w.addApp("org", "organization", fmt.Sprintf("http://localhost:%d/", w.port))
	w.addApp("all", "public", fmt.Sprintf("http://localhost:%d/", w.port))
	w.addApp("start", "owner", fmt.Sprintf("http://127.0.0.1:%d/lab/tree?folder=/home", w.port))
	w.addApp("elsewhere", "public", "http://169.254.169.254/latest")
	_, w.page, _ = w.browser("").open(dashboard + "/")
	t.Cleanup(func() {
		w.Stop()
		w.Stop()
	})
	return w
}

// byPath leaves the server without hosts for apps.
func byPath(o *coderd.Options) { o.WildcardHost = "" }

func (w *world) addApp(slug, share, address string) {
	w.t.Helper()
	w.Exec(`INSERT INTO workspace_apps (id, agent_id, slug, display_name, sharing_level, url) VALUES ($1, $2, $3, $3, $4, $5)`, uuid.New(), w.agent, slug, share, address)
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
	world  *world
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
	b := &browser{t: w.t, world: w, jar: jar}
	addr := w.URL.Host
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
		jar.SetCookies(u, []*http.Cookie{{Name: "coder_session_token", Value: w.Token(user), Path: "/", HttpOnly: true}})
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

// send makes a request with the browser's cookies. For the dashboard's page, the body is "dashboard" and the path.
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
	return resp.StatusCode, b.world.named(string(body), resp.Request.URL.Path), resp.Header
}

// named replaces the dashboard's page by "dashboard" and its path.
func (w *world) named(text, path string) string {
	if w.page == "" {
		return text
	}
	return strings.ReplaceAll(text, w.page, "dashboard "+path)
}

// host returns an app's address.
func host(slug string) string {
	return "http://" + slug + "--main--dev--ann" + strings.TrimPrefix(wildcard, "*")
}
