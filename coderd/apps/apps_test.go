package apps_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// TestByHost checks that a person who is signed in to the dashboard opens an app by its address without further steps.
func TestByHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser("ann")
	status, body, _ := b.open(host("code") + "/files/a%2Fb?x=1&y=%20z")
	if status != 200 || body != "app /files/a%2Fb?x=1&y=%20z" {
		t.Fatalf("%d %s after %v", status, body, b.last)
	}
	if len(b.last) != 3 || !strings.HasPrefix(b.last[0], dashboard+"/api/v2/applications/auth-redirect?") {
		t.Errorf("the way was %v", b.last)
	}
	if _, body, _ := b.open(host("code") + "/again"); body != "app /again" || len(b.last) != 0 {
		t.Errorf("a second time: %s after %v", body, b.last)
	}
	// Any port, by number.
	if status, body, _ := b.open(host(fmt.Sprint(w.port)) + "/port"); status != 200 || body != "app /port" {
		t.Errorf("by port: %d %s", status, body)
	}
	// The template sets where the app begins.
	if _, body, _ := b.open(host("start") + "/"); body != "app /lab/tree?folder=/home" {
		t.Errorf("the start page: %s", body)
	}
	// A request from the app's own page.
	status, body, _ = b.send("POST", host("code")+"/save", http.Header{"Origin": {host("code")}, "Sec-Fetch-Site": {"same-origin"}})
	if status != 200 || body != "app /save" {
		t.Errorf("a request of the app's own: %d %s", status, body)
	}
	// A program with a token.
	status, body, _ = w.browser("").send("GET", host("code")+"/x", http.Header{"Coder-Session-Token": {w.Token("ann")}})
	if status != 200 || body != "app /x" || w.got().Header.Get("Coder-Session-Token") != "" {
		t.Errorf("a program: %d %s", status, body)
	}
	// The dashboard is at its own address only.
	if _, body, _ := b.open(dashboard + "/workspaces"); body != "dashboard /workspaces" {
		t.Errorf("the dashboard: %s", body)
	}
}

// TestShareLevels checks who can open what, by host, by path and with a token, whether it exists or not.
func TestShareLevels(t *testing.T) {
	t.Parallel()
	byHost := newWorld(t)
	byPaths := newWorld(t, byPath)
	everything := []string{"code", "team", "org", "all", "none"}
	for user, allowed := range map[string]string{
		"ann": "code team org all", "bob": "team org all", "olga": "team org all", "": "all",
	} {
		for _, slug := range everything {
			t.Run(user+" opens "+slug, func(t *testing.T) {
				for kind, open := range map[string]func() (int, string){
					"host": func() (int, string) {
						status, body, _ := byHost.browser(user).open(host(slug) + "/x")
						return status, body
					},
					"path": func() (int, string) {
						status, body, _ := byPaths.browser(user).open(dashboard + "/@ann/dev.main/apps/" + slug + "/x")
						return status, body
					},
					"token": func() (int, string) {
						status, body, _ := byHost.browser("").send("GET", host(slug)+"/x", http.Header{"Coder-Session-Token": {byHost.Token(user)}})
						if user == "" {
							status, body, _ = byHost.browser("").send("GET", host(slug)+"/x", http.Header{})
						}
						return status, body
					},
				} {
					status, body := open()
					switch {
					case strings.Contains(allowed, slug):
						if status != 200 || body != "app /x" {
							t.Errorf("by %s: %d %s", kind, status, body)
						}
					case user == "" && kind != "token": // asked to sign in, whether there is such an app or not
						if body != "dashboard /login" {
							t.Errorf("by %s: %d %s", kind, status, body)
						}
					case user == "":
						if status != http.StatusUnauthorized {
							t.Errorf("by %s: %d %s", kind, status, body)
						}
					default:
						if status != http.StatusNotFound || strings.Contains(body, "app /x") {
							t.Errorf("by %s: %d %s", kind, status, body)
						}
					}
				}
			})
		}
	}
	// Only the owner may use a port, whatever runs there.
	for _, user := range []string{"bob", "olga"} {
		if status, body, _ := byHost.browser(user).open(host(fmt.Sprint(byHost.port))); status != http.StatusNotFound {
			t.Errorf("%s opens a port: %d %s", user, status, body)
		}
	}
}

func TestByPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byPath)
	b := w.browser("ann")
	status, body, header := b.open(dashboard + "/@ann/dev/apps/code/page?x=1")
	if status != 200 || body != "app /page?x=1" || len(b.last) != 1 {
		t.Fatalf("%d %s after %v", status, body, b.last)
	}
	policy := strings.Join(header.Values("Content-Security-Policy"), "|")
	if !strings.Contains(policy, "sandbox") || strings.Contains(policy, "allow-same-origin") || header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the page is not confined: %v", header)
	}
	if seen := w.got(); seen.Header.Get("Cookie") != "" {
		t.Errorf("the app got %v", seen.Header)
	}
	// The page's own files and requests come from an origin without a session: the token in the address admits them.
	page, err := url.Parse(b.last[0])
	if err != nil {
		t.Fatal(err)
	}
	file := page.ResolveReference(&url.URL{Path: "main.js"}).String()
	sandboxed := http.Header{"Origin": {"null"}, "Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"cors"}, "Sec-Fetch-Dest": {"empty"}}
	status, body, header = w.browser("").send("GET", file, sandboxed)
	if status != 200 || body != "app /main.js" || header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("the page's file: %d %s %v", status, body, header)
	}
	// The token is valid for this app only.
	other := strings.Replace(file, "/apps/code/", "/apps/start/", 1)
	if status, body, _ := w.browser("").send("GET", other, sandboxed); status != http.StatusUnauthorized {
		t.Errorf("another app with the token: %d %s", status, body)
	}
	// An expired token: the session decides again.
	stale := dashboard + "/@ann/dev/apps/code/~stale/page"
	if _, body, _ := b.open(stale); body != "app /page" {
		t.Errorf("a stale address: %s after %v", body, b.last)
	}
	if status, _, _ := w.browser("").send("GET", stale, sandboxed); status != http.StatusUnauthorized {
		t.Errorf("a stale address without a session: %d", status)
	}
	if _, body, _ := b.open(dashboard + "/@ann/dev/apps/start"); body != "app /lab/tree?folder=/home" {
		t.Errorf("the start page: %s after %v", body, b.last)
	}
	// These pages of the dashboard only look similar.
	for _, path := range []string{"/@ann/dev", "/@ann/dev/builds/1", "/apps/code/x/y/z", "/ann/dev/apps/code/"} {
		if _, body, _ := b.open(dashboard + path); body != "dashboard "+path {
			t.Errorf("%s: %s", path, body)
		}
	}
	off := newWorld(t, func(o *coderd.Options) { o.WildcardHost, o.NoPathApps = "", true })
	if status, body, _ := off.browser("ann").open(dashboard + "/@ann/dev/apps/code/"); status != 404 || !strings.Contains(body, "--wildcard-access-url") {
		t.Errorf("turned off: %d %s", status, body)
	}
}

// TestPathLeadsToHost checks that apps' paths redirect to their hosts if they have hosts.
func TestPathLeadsToHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *coderd.Options) { o.NoPathApps = true })
	b := w.browser("ann")
	if _, body, _ := b.open(dashboard + "/@ann/dev/apps/code/page?x=1"); body != "app /page?x=1" || !strings.HasPrefix(b.last[0], host("code")+"/page") {
		t.Errorf("%s after %v", body, b.last)
	}
}

func TestWebsocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.answers(func(rw http.ResponseWriter, r *http.Request) {
		conn, err := websock.Accept(rw, r, websock.AcceptOptions{OriginHosts: []string{"*"}}) // the app leaves that to the proxy
		if err != nil {
			return
		}
		defer conn.CloseNow()
		for {
			data, err := conn.Read(context.Background())
			if err != nil || conn.Write(context.Background(), append([]byte("app "), data...)) != nil {
				return
			}
		}
	})
	b := w.browser("ann")
	b.open(host("code") + "/") // for the cookie; the app has no page
	dial := func(origin string) (*websock.Conn, error) {
		u, err := url.Parse(host("code") + "/ws")
		if err != nil {
			t.Fatal(err)
		}
		return websock.Dial(t.Context(), u, websock.DialOptions{HTTPClient: b.client, Header: http.Header{"Origin": {origin}}})
	}
	conn, err := dial(host("code"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(t.Context(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if data, err := conn.Read(t.Context()); err != nil || string(data) != "app hello" {
		t.Errorf("got %s, %v", data, err)
	}
	// A page of the same workspace may reach the app.
	friend, err := dial(host("other"))
	if err != nil {
		t.Fatal(err)
	}
	friend.CloseNow()
	for _, origin := range []string{"https://evil.example", "http://code--main--dev--bob.apps.example.com", "null", dashboard} {
		if conn, err := dial(origin); err == nil {
			conn.CloseNow()
			t.Errorf("a page of %s opened the app's websocket", origin)
		}
	}
	// The session ends, and its open connections end with it.
	w.Exec(`DELETE FROM api_keys WHERE user_id = $1`, w.User("ann"))
	w.Recheck(t.Context(), uuid.New())
	if err := conn.Write(t.Context(), []byte("still")); err != nil {
		t.Fatal(err)
	}
	if data, err := conn.Read(t.Context()); err != nil || string(data) != "app still" {
		t.Errorf("after another user's recheck: %s, %v", data, err)
	}
	w.Recheck(t.Context(), w.User("ann"))
	if data, err := conn.Read(t.Context()); err == nil {
		t.Errorf("after the session: %s", data)
	}
	if status, body, _ := b.open(host("code") + "/"); !strings.Contains(body, "dashboard /login") {
		t.Errorf("after the session: %d %s", status, body)
	}
}

// TestStreams checks that an app's events arrive as it sends them.
func TestStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	more := make(chan struct{})
	w.answers(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(rw, "data: 1\n\n")
		http.NewResponseController(rw).Flush()
		select {
		case <-more:
			fmt.Fprint(rw, "data: 2\n\n")
		case <-r.Context().Done():
		}
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host("all")+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.browser("").client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || lines.Text() != "data: 1" {
		t.Fatalf("got %q, %v", lines.Text(), lines.Err())
	}
	close(more)
	lines.Scan() // an empty line ends the first event
	if !lines.Scan() || lines.Text() != "data: 2" {
		t.Fatalf("got %q, %v", lines.Text(), lines.Err())
	}
}

// TestTrouble checks that failures explain why, and what to do.
func TestTrouble(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`INSERT INTO workspace_apps (id, agent_id, slug, url, external) VALUES ($1, $2, 'docs', 'https://example.com', true)`, uuid.New(), w.agent)
	w.Exec(`INSERT INTO workspace_apps (id, agent_id, slug, command) VALUES ($1, $2, 'top', 'htop')`, uuid.New(), w.agent)
	w.Exec(`INSERT INTO workspace_apps (id, agent_id, slug, url, health) VALUES ($1, $2, 'sick', 'http://localhost:1', 'unhealthy')`, uuid.New(), w.agent)
	b := w.browser("ann")
	want := func(slug string, status int, text string) {
		t.Helper()
		got, body, header := b.open(host(slug) + "/")
		if got != status || !strings.Contains(body, text) || !strings.Contains(body, dashboard+"/") {
			t.Errorf("%s: %d %s, want %d and %q", slug, got, body, status, text)
		}
		if policy := header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("%s: the page's policy is %q", slug, policy)
		}
	}
	want("1", http.StatusBadGateway, "Nothing listens on port 1")
	want("sick", http.StatusBadGateway, "Its health check fails")
	want("docs", http.StatusNotFound, "link to another site")
	want("top", http.StatusNotFound, "Open it in a terminal")
	want("elsewhere", http.StatusNotFound, "must belong to the workspace")
	want("0", http.StatusNotFound, "no such app")
	want("65536", http.StatusNotFound, "no such app")
	w.Mesh.RevokeAgents(w.agent)
	w.Stop() // no pooled connection hides the failure
	if status, _, _ := b.open(host("code") + "/"); status != http.StatusBadGateway {
		t.Errorf("after Stop: %d", status)
	}
	stopped := newWorldWithoutAgent(t)
	stopped.BuildRow(stopped.workspace, sdk.TransitionStop, sdk.JobSucceeded)
	b = stopped.browser("ann")
	if status, body, _ := b.open(host("code") + "/"); status != http.StatusServiceUnavailable || !strings.Contains(body, "is not running") {
		t.Errorf("stopped: %d %s", status, body)
	}
	// A program gets JSON.
	if _, body, header := b.send("GET", host("code")+"/", http.Header{"Coder-Session-Token": {stopped.Token("ann")}}); !strings.HasPrefix(body, `{"message":"The workspace dev is not running."`) || !strings.HasPrefix(header.Get("Content-Type"), "application/json") {
		t.Errorf("for a program: %s", body)
	}
	away := newWorldWithoutAgent(t)
	b = away.browser("ann")
	if status, body, _ := b.open(host("code") + "/"); status != http.StatusBadGateway || !strings.Contains(body, "agent is not connected") {
		t.Errorf("agent away: %d %s", status, body)
	}
}

func TestUseIsNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`UPDATE workspaces SET last_used_at = now() - interval '1 hour'`)
	used := func() (at time.Time) {
		if err := w.DB.Pool.QueryRow(t.Context(), `SELECT last_used_at FROM workspaces`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	before := used()
	w.browser("").open(host("all") + "/")
	if !used().Equal(before) {
		t.Error("a stranger keeps the workspace running")
	}
	w.browser("ann").open(host("code") + "/")
	if !used().After(before) {
		t.Error("its owner's use was not noted")
	}
}

// TestPortURL checks that the pattern leads to the port that it names, as the proxy parses it, or it is empty.
