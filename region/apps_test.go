//go:build linux

package region_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/region"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const wildcard = "*.eu.example.com"

// world is a server, a region proxy, and ann's running workspace with a real agent and apps.
type world struct {
	*coderdtest.Server
	t                *testing.T
	workspace, agent uuid.UUID
	app              *httptest.Server
	token            secret.Token // the proxy's
	proxy            *url.URL
	addr             string // where the proxy listens
	ended            chan error
	log              *slog.Logger  // the proxy's; nil: the server's
	renewEvery       time.Duration // of the proxy; 0: its default
	way              *way          // of the proxy to the server; nil if it is a direct one
	ssh              net.Listener  // of the proxy's SSH gateway; nil if it has none
	wireGuard        *region.WireGuard
	loaded           chan struct{} // after each comparison of its devices
	stop             func()        // ends the proxy
}

func newWorld(t *testing.T, wildcard string) *world {
	t.Helper()
	w := &world{Server: coderdtest.Start(t), t: t}
	w.build(wildcard)
	return w
}

// build starts the rest of a world that has a server.
func (w *world) build(wildcard string) {
	t := w.t
	t.Helper()
	w.app = httptest.NewServer(http.HandlerFunc(serveApp))
	t.Cleanup(func() {
		w.app.CloseClientConnections()
		w.app.Close()
	})
	w.workspace, w.agent = w.RunningRow("ann", "dev")
	for slug, share := range map[string]string{"code": "owner", "other": "owner", "team": "authenticated", "all": "public"} {
		w.Exec(`INSERT INTO workspace_apps (id, agent_id, slug, display_name, sharing_level, url) VALUES ($1, $2, $3, $3, $4, $5)`,
			uuid.New(), w.agent, slug, share, w.app.URL)
	}
	w.runAgent(w.agent)
	w.token, w.proxy, w.addr, w.ended = w.runProxy("eu", wildcard)
}

// serveApp is the program in the workspace. It echoes on upgraded connections.
func serveApp(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		fmt.Fprintf(rw, "app %s %s", r.URL.RequestURI(), r.Header.Get("Cookie"))
		return
	}
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_, _ = io.Copy(conn, buffered)
}

func (w *world) runAgent(id uuid.UUID) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	opts := agent.Options{URL: w.URL, Token: coderdtest.Token(id), StateDir: w.t.TempDir(), LogDir: w.t.TempDir()}
	go func() { done <- agent.Run(ctx, opts) }()
	w.t.Cleanup(func() {
		cancel()
		<-done
	})
	testwait.Until(w.t, "the agent on the mesh", func() error {
		_, ok := w.Mesh.CallingAgent(tailnet.Addr(id))
		return testwait.Unless(ok, "it is not there")
	})
}

// runProxy creates and runs a proxy.
func (w *world) runProxy(name, wildcard string) (token secret.Token, at *url.URL, addr string, ended chan error) {
	w.t.Helper()
	made, err := w.As("olga").CreateWorkspaceProxy(w.t.Context(), sdk.CreateWorkspaceProxyRequest{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	at = &url.URL{Scheme: "http", Host: "localhost:" + port} // another host than the server's
	ended = w.serveProxy(secret.Token(made.Token), l, at, wildcard)
	testwait.Until(w.t, "the region", func() error {
		list, err := w.As("ann").Regions(w.t.Context())
		if err != nil {
			return err
		}
		last := list.Regions[len(list.Regions)-1]
		return testwait.Unless(last.Healthy && last.WildcardHostname == wildcard, "the last one is %+v", last)
	})
	return secret.Token(made.Token), at, l.Addr().String(), ended
}

// serveProxy runs a proxy, and waits until it is connected.
func (w *world) serveProxy(token secret.Token, l net.Listener, at *url.URL, wildcard string) (ended chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	synced := make(chan struct{}, 10)
	var sshAccess string
	if w.ssh != nil {
		sshAccess = w.ssh.Addr().String()
	}
	server := w.URL
	if w.way != nil {
		server = w.way.url
	}
	w.stop = func() {
		cancel()
		for range ended {
		}
	}
	go func() {
		err := region.Run(ctx, region.Options{
			SSH: w.ssh, SSHAccess: sshAccess, WireGuard: w.wireGuard,
			Logger: cmp.Or(w.log, w.Log), RenewEvery: w.renewEvery, Server: server, Token: token, URL: at, Listener: l, Apps: true, WildcardHost: wildcard, Synced: func() { synced <- struct{}{} },
			Proxies: clientaddr.Proxies{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		})
		ended <- err
		close(ended)
	}()
	w.t.Cleanup(w.stop)
	<-synced
	return ended
}

// browser is a browser with its own cookies, which finds the region's hosts at its proxy.
type browser struct {
	w   *world
	jar http.CookieJar
	via []string // addresses visited on the way
	*http.Client
}

// browser returns a browser that is signed in as a user; "" leaves it signed out.
func (w *world) browser(user string) *browser {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	b := &browser{w: w, jar: jar}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.Contains(addr, "eu.example.com") {
			addr = w.addr
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	w.t.Cleanup(transport.CloseIdleConnections)
	b.Client = &http.Client{Transport: transport, Jar: jar, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		b.via = append(b.via, r.URL.String())
		if r.URL.Path == "/login" {
			return http.ErrUseLastResponse
		}
		if len(via) > 8 {
			return fmt.Errorf("redirected in circles: %v", b.via)
		}
		return nil
	}}
	if user != "" {
		jar.SetCookies(w.URL, []*http.Cookie{{Name: "coder_session_token", Value: w.Token(user), Path: "/", HttpOnly: true}})
	}
	return b
}

// open visits an address as a person does.
func (b *browser) open(address string) (int, string) {
	b.w.t.Helper()
	b.via = nil
	r, err := http.NewRequestWithContext(b.w.t.Context(), http.MethodGet, address, nil)
	if err != nil {
		b.w.t.Fatal(err)
	}
	r.Header = http.Header{"Accept": {"text/html"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}, "Sec-Fetch-Site": {"none"}, "X-Forwarded-For": {visitorAddr}}
	resp, err := b.Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// visitorAddr is the address that the region's reverse proxy names.
const visitorAddr = "203.0.113.9"

func host(slug string) string { return "http://" + slug + "--main--dev--ann.eu.example.com" }

// cookie returns the browser's token of an app's host.
func (b *browser) cookie(slug string) string {
	b.w.t.Helper()
	u, err := url.Parse(host(slug))
	if err != nil {
		b.w.t.Fatal(err)
	}
	for _, c := range b.jar.Cookies(u) {
		if c.Name == "coder_app_token" {
			return c.Value
		}
	}
	b.w.t.Fatalf("the browser has no token for %s", slug)
	return ""
}

// upgraded opens a connection of any protocol to an app, as a script on its page does.
func (b *browser) upgraded(slug string) (net.Conn, *bufio.Reader) {
	b.w.t.Helper()
	conn, err := net.Dial("tcp", b.w.addr)
	if err != nil {
		b.w.t.Fatal(err)
	}
	b.w.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /echo HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nCookie: coder_app_token=%s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
		strings.TrimPrefix(host(slug), "http://"), host(slug), b.cookie(slug))
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		b.w.t.Fatalf("upgrade: %v, %v", resp, err)
	}
	return conn, r
}

func TestAppsAtRegion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wildcard)
	ann := w.browser("ann")
	if status, body := ann.open(host("code") + "/x?y=1"); status != http.StatusOK || body != "app /x?y=1 " {
		t.Fatalf("ann's app: %d %s (%v)", status, body, ann.via)
	}
	conn, r := ann.upgraded("code")
	fmt.Fprintln(conn, "hello")
	if line, err := r.ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("echo: %q, %v", line, err)
	}
	if status, body := ann.open(w.proxy.String() + "/@ann/dev/apps/code/z"); status != http.StatusOK || body != "app /z " {
		t.Errorf("by path: %d %s (%v)", status, body, ann.via)
	}
	port := strings.TrimPrefix(w.app.URL, "http://127.0.0.1:")
	if status, body := ann.open(host(port) + "/p"); status != http.StatusOK || body != "app /p " {
		t.Errorf("a port: %d %s", status, body)
	}
	bob := w.browser("bob")
	if status, body := bob.open(host("team") + "/"); status != http.StatusOK {
		t.Errorf("bob at a shared app: %d %s", status, body)
	}
	for _, slug := range []string{"code", "none", port} {
		if status, body := bob.open(host(slug) + "/"); status != http.StatusNotFound {
			t.Errorf("bob at %s: %d %s", slug, status, body)
		}
	}
	nobody := w.browser("")
	if status, body := nobody.open(host("all") + "/"); status != http.StatusOK {
		t.Errorf("a public app: %d %s", status, body)
	}
	if status, _ := nobody.open(host("code") + "/"); status != http.StatusSeeOther || !strings.HasPrefix(nobody.via[len(nobody.via)-1], w.URL.String()+"/login?redirect=") {
		t.Errorf("signed out: %d, %v", status, nobody.via)
	}
	// The log names the user, the proxy, and the address that the reverse proxy in front of it names.
	conn.Close()
	testwait.Until(t, "the log of connections", func() error {
		list, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.ConnectionLogs {
			if c.Region == "eu" && c.Username == "ann" && c.SlugOrPort == "code" && c.Type == "workspace_app" && c.IP == visitorAddr && c.AgentName == "main" {
				return nil
			}
		}
		return fmt.Errorf("the log is %+v", list.ConnectionLogs)
	})
}

// Without hosts of its own, a region opens apps by path: their pages are sandboxed, and their token is in the address.
func TestAppsByPathAtRegion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	ann := w.browser("ann")
	address := w.proxy.String() + "/@ann/dev.main/apps/code/z?q=1"
	status, body := ann.open(address)
	if status != http.StatusOK || body != "app /z?q=1 " {
		t.Fatalf("%d %s (%v)", status, body, ann.via)
	}
	last, err := url.Parse(ann.via[len(ann.via)-1])
	if err != nil || !strings.HasPrefix(last.Path, "/@ann/dev.main/apps/code/~") {
		t.Fatalf("the address is %v, %v", last, err)
	}
	token, _, _ := strings.Cut(strings.TrimPrefix(last.Path, "/@ann/dev.main/apps/code/~"), "/")
	// Another app, the server, and a browser without the token do not take it.
	for name, at := range map[string]string{
		"another app": w.proxy.String() + "/@ann/dev.main/apps/other/~" + token + "/",
		"the server":  w.URL.String() + "/@ann/dev.main/apps/code/~" + token + "/",
		"no token":    address,
	} {
		stranger := w.browser("")
		if status, body := stranger.open(at); status != http.StatusSeeOther || !strings.Contains(stranger.via[len(stranger.via)-1], "/login?") {
			t.Errorf("%s: %d %s (%v)", name, status, body, stranger.via)
		}
	}
}

// A visitor who loses a right also loses what is open.
func TestVisitsEndWithRights(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(*world) error{
		"suspended": func(w *world) error {
			_, err := w.As("olga").SuspendUser(w.t.Context(), "bob")
			return err
		},
		"signed out": func(w *world) error { return w.As("bob").Logout(w.t.Context()) },
		"no longer shared": func(w *world) error {
			w.Exec(`UPDATE workspace_apps SET sharing_level = 'owner'`)
			w.Exec(`SELECT pg_notify('users_revoked', '')`)
			return nil
		},
		"proxy deleted": func(w *world) error { return w.As("olga").DeleteWorkspaceProxy(w.t.Context(), "eu") },
		"its token rotated": func(w *world) error {
			_, err := w.As("olga").PatchWorkspaceProxy(w.t.Context(), "eu", sdk.PatchWorkspaceProxyRequest{RegenerateToken: true})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, wildcard)
			bob := w.browser("bob")
			bob.open(host("team") + "/")
			conn, r := bob.upgraded("team")
			if err := revoke(w); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(testwait.Patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.ReadByte(); err == nil || errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
				t.Fatalf("the connection has not ended: %v", err)
			}
			if strings.HasPrefix(name, "proxy") || strings.HasPrefix(name, "its") {
				if err := <-w.ended; fault.CodeOf(err) != fault.Unauthenticated {
					t.Fatalf("the proxy ended with %v", err)
				}
				return
			}
			if status, body := bob.open(host("team") + "/"); status == http.StatusOK {
				t.Fatalf("a new request: %d %s", status, body)
			}
		})
	}
}

// TestVisitsOutliveServers cuts a region off from the servers, while it asks many times in vain whether what is open may
// go on. It goes on, until the servers are there again and refuse it. How long it would go on, TestVisitsWithoutServers
// checks.
func TestVisitsOutliveServers(t *testing.T) {
	t.Parallel()
	asked := &askedInVain{times: map[string]int{}}
	w := &world{Server: coderdtest.Start(t), t: t, log: slog.New(asked), renewEvery: 20 * time.Millisecond}
	w.way = newWay(t, w.URL.Host)
	w.build(wildcard)
	ann := w.browser("ann")
	ann.open(host("code") + "/")
	conn, r := ann.upgraded("code")
	terminal := w.terminal(uuid.New())
	use := func(when string) {
		t.Helper()
		fmt.Fprintln(conn, when)
		if line, err := r.ReadString('\n'); err != nil || line != when+"\n" {
			t.Fatalf("%s: echo %q, %v", when, line, err)
		}
		w.types(terminal, "echo "+when+" $((6*7))\r", when+" 42")
	}
	use("before")
	w.way.cut()
	for n := range 10 {
		asked.again(t)
		use(fmt.Sprint("cut ", n))
	}
	// With the servers, their word counts again.
	if _, err := w.As("olga").SuspendUser(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	asked.again(t)
	use("suspended")
	w.way.open()
	if err := conn.SetReadDeadline(time.Now().Add(testwait.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("the app of a suspended user has not ended: %v", err)
	}
	w.closed(terminal)
}

// askedInVain is a log that counts how often visits of each kind were not renewed.
type askedInVain struct {
	mu    sync.Mutex
	times map[string]int
}

func (a *askedInVain) Enabled(context.Context, slog.Level) bool { return true }
func (a *askedInVain) WithAttrs([]slog.Attr) slog.Handler       { return a }
func (a *askedInVain) WithGroup(string) slog.Handler            { return a }

func (a *askedInVain) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "visit not renewed, trying again" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r.Attrs(func(attr slog.Attr) bool {
		if attr.Key == "what" {
			a.times[attr.Value.String()]++
		}
		return true
	})
	return nil
}

// again waits until an app and a terminal were not renewed once more.
func (a *askedInVain) again(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	before := maps.Clone(a.times)
	a.mu.Unlock()
	testwait.Until(t, "what is open is not renewed", func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		more := a.times["app"] > before["app"] && a.times["terminal"] > before["terminal"]
		return testwait.Unless(more, "in vain: %v, before: %v", a.times, before)
	})
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
