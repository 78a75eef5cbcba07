package apps_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
)

// TestAppsSeeNoCredential checks that an app gets only its own credentials, whatever a browser or program sends along.
func TestAppsSeeNoCredential(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser("ann")
	b.open(host("code") + "/")
	u, err := url.Parse(host("code"))
	if err != nil {
		t.Fatal(err)
	}
	b.jar.SetCookies(u, []*http.Cookie{
		{Name: "coder_session_token", Value: "stolen"}, {Name: "__Host-coder_app_token", Value: "stolen"}, {Name: "Coder_App_State", Value: "stolen"},
		{Name: "theme", Value: "dark"},
	})
	w.got()
	b.send("GET", host("code")+"/x?coder_session_token=stolen&a=b&coder%5Fapp_code=stolen", http.Header{
		"Coder-Session-Token": {w.Token("ann")}, "X-Forwarded-For": {"6.6.6.6"}, "X-Forwarded-Host": {"evil.example"}, "Forwarded": {"for=6.6.6.6"}, "X-Real-Ip": {"6.6.6.6"},
	})
	seen := w.got()
	if seen == nil {
		t.Fatal("the app was not asked")
	}
	text := fmt.Sprint(seen.Header, seen.URL, seen.Host)
	if strings.Contains(text, "stolen") || strings.Contains(text, "coder_") || strings.Contains(text, "Coder-Session") || strings.Contains(text, "6.6.6.6") || strings.Contains(text, "evil") {
		t.Errorf("the app was told %s", text)
	}
	if seen.Header.Get("Cookie") != "theme=dark" || seen.URL.RawQuery != "a=b" {
		t.Errorf("the app's own things did not come through: %s", text)
	}
	// A session may also be sent as a bearer token; an app's own value of that header passes through.
	for value, want := range map[string]string{"Bearer abcdefghij-0123456789012345678901": "", "Bearer of-the-app": "Bearer of-the-app", "Basic eDp5": "Basic eDp5"} {
		b.send("GET", host("code")+"/x", http.Header{"Authorization": {value}})
		if seen := w.got(); seen == nil || seen.Header.Get("Authorization") != want {
			t.Errorf("%s: the app was told %v", value, seen)
		}
	}
}

// TestAppsSetOwnCookiesOnly checks that an app cannot sign its visitors in or out, nor reach another app's cookies.
func TestAppsSetOwnCookiesOnly(t *testing.T) {
	t.Parallel()
	answer := func(rw http.ResponseWriter, _ *http.Request) {
		h := rw.Header()
		h.Add("Set-Cookie", "coder_session_token=evil; Domain=example.com; Path=/")
		h.Add("Set-Cookie", "__Host-coder_app_token=evil; Secure; Path=/")
		h.Add("Set-Cookie", "CODER_APP_STATE=evil")
		h.Add("Set-Cookie", "mine=1; domain=.apps.example.com; Path=/a; HttpOnly; Partitioned")
		h.Set("Strict-Transport-Security", "max-age=1; includeSubDomains")
		h.Set("Content-Security-Policy", "default-src *")
		h.Set("Clear-Site-Data", `"*"`)
		h.Set("Service-Worker-Allowed", "/")
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Alt-Svc", `h3="evil.example:443"`)
		h.Set("WWW-Authenticate", `Basic realm="Sign in to the dashboard again"`)
	}
	w := newWorld(t)
	w.answers(answer)
	_, _, h := w.browser("").open(host("all") + "/")
	if got := h.Values("Set-Cookie"); len(got) != 1 || got[0] != "mine=1; Path=/a; HttpOnly; Partitioned" {
		t.Errorf("by host the browser is given %q", got)
	}
	byPaths := newWorld(t, byPath)
	byPaths.answers(answer)
	_, _, h = byPaths.browser("").open(dashboard + "/@ann/dev/apps/all/")
	for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed", "Access-Control-Allow-Credentials", "Strict-Transport-Security", "Alt-Svc", "WWW-Authenticate"} {
		if h.Get(name) != "" {
			t.Errorf("by path the browser is given %s: %q", name, h.Values(name))
		}
	}
	policy := h.Values("Content-Security-Policy")
	if len(policy) != 2 || !strings.HasPrefix(policy[1], "sandbox ") || strings.Contains(policy[1], "allow-same-origin") {
		t.Errorf("by path the page's policy is %q", policy)
	}
}

// TestAppsChangeNoSite checks that an app's headers cannot sign its visitors out, nor decide how browsers reach other hosts, or this one
// later.
func TestAppsChangeNoSite(t *testing.T) {
	t.Parallel()
	site := []string{
		"Clear-Site-Data", "Set-Login", "Set-Cookie2", "Secure-Session-Registration", "Sec-Session-Registration", "Strict-Transport-Security", "Alt-Svc", "Public-Key-Pins",
		"Public-Key-Pins-Report-Only", "Expect-CT", "NEL", "Report-To", "Observe-Browsing-Topics", "Attribution-Reporting-Register-Source",
		"Attribution-Reporting-Register-Trigger", "Attribution-Reporting-Register-OS-Source", "Attribution-Reporting-Register-OS-Trigger",
	}
	origin := []string{
		"Service-Worker-Allowed", "Reporting-Endpoints", "Origin-Agent-Cluster", "Accept-CH", "Critical-CH", "Use-As-Dictionary", "Shared-Storage-Write", "Activate-Storage-Access",
		"Supports-Loading-Mode", "Speculation-Rules", "Cross-Origin-Opener-Policy", "Cross-Origin-Embedder-Policy", "Cross-Origin-Resource-Policy",
		"Content-Security-Policy-Report-Only", "Access-Control-Allow-Credentials",
	}
	answer := func(rw http.ResponseWriter, _ *http.Request) {
		for _, name := range slices.Concat(site, origin, []string{"X-Own"}) {
			rw.Header().Set(name, "evil")
		}
	}
	for where, c := range map[string]struct {
		edit []func(*coderd.Options)
		url  string
		gone []string
		kept []string
	}{
		"by host": {nil, host("all") + "/", site, append(origin, "X-Own")},
		"by path": {[]func(*coderd.Options){byPath}, dashboard + "/@ann/dev/apps/all/", slices.Concat(site, origin), []string{"X-Own"}},
	} {
		w := newWorld(t, c.edit...)
		w.answers(answer)
		_, _, h := w.browser("").open(c.url)
		for _, name := range c.gone {
			if h.Get(name) != "" {
				t.Errorf("%s the browser is given %s: %q", where, name, h.Values(name))
			}
		}
		for _, name := range c.kept {
			if h.Get(name) != "evil" {
				t.Errorf("%s the browser is not given %s", where, name)
			}
		}
	}
}

// TestInterimAnswersAndTrailers checks that an app's headers reach the browser in its final answer only, where they are confined.
func TestInterimAnswersAndTrailers(t *testing.T) {
	t.Parallel()
	answer := func(rw http.ResponseWriter, _ *http.Request) {
		for _, status := range []int{http.StatusProcessing, http.StatusEarlyHints, 199} {
			rw.Header().Set("Set-Cookie", "coder_session_token=EARLY; Domain=example.com")
			rw.Header().Set("Link", "</evil.js>; rel=preload; as=script")
			rw.Header().Set("Clear-Site-Data", `"*"`)
			rw.WriteHeader(status)
		}
		for name := range rw.Header() {
			rw.Header().Del(name)
		}
		rw.Header().Set("X-Own", "yes")
		rw.Header().Set("Trailer", "Set-Cookie, X-Announced")
		fmt.Fprint(rw, "the answer")
		rw.Header().Set("Set-Cookie", "coder_session_token=LATE; Domain=example.com")
		rw.Header().Set("X-Announced", "late")
		rw.Header().Set(http.TrailerPrefix+"Clear-Site-Data", `"*"`)
	}
	strict := func(o *coderd.Options) { o.Transport = "max-age=60" }
	for where, c := range map[string]struct {
		edit []func(*coderd.Options)
		host string
		path string
	}{
		"by host": {[]func(*coderd.Options){strict}, strings.TrimPrefix(host("all"), "http://"), "/"},
		"by path": {[]func(*coderd.Options){strict, byPath}, strings.TrimPrefix(dashboard, "http://"), "/@ann/dev/apps/all/"},
	} {
		w := newWorld(t, c.edit...)
		w.answers(answer)
		b := w.browser("")
		status, body, h := b.open("http://" + c.host + c.path)
		if status != http.StatusOK || body != "the answer" || h.Get("X-Own") != "yes" || h.Get("Strict-Transport-Security") != "max-age=60" || len(h.Values("Set-Cookie")) != 0 {
			t.Errorf("%s: %d %q %v", where, status, body, h)
		}
		// Every byte of the answer, with its interim answers and trailers.
		conn, err := net.Dial("tcp", w.URL.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		path := c.path
		if n := len(b.last); n > 0 {
			u, err := url.Parse(b.last[n-1])
			if err != nil {
				t.Fatal(err)
			}
			path = u.RequestURI()
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nTE: trailers\r\nConnection: close\r\n\r\n", path, c.host)
		raw, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		if !strings.HasPrefix(text, "HTTP/1.1 200 OK\r\n") || !strings.Contains(text, "the answer") {
			t.Errorf("%s: the browser reads %q", where, text)
		}
		for _, bad := range []string{"EARLY", "LATE", "Clear-Site-Data", "late", "preload", "Trailer:"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s: the browser reads %q in %q", where, bad, text)
			}
		}
	}
}

// TestForeignPages checks that requests that another app's page, or another site's, makes a visitor's browser send do not
// reach an app.
func TestForeignPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser("ann")
	b.open(host("code") + "/")
	evil := "http://evil--main--dev--bob.apps.example.com"
	for name, c := range map[string]struct {
		method string
		header http.Header
	}{
		"a form of another app":          {"POST", http.Header{"Origin": {evil}, "Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"navigate"}}},
		"a fetch of another app":         {"GET", http.Header{"Origin": {evil}, "Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"cors"}}},
		"an image in another app":        {"GET", http.Header{"Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"no-cors"}, "Sec-Fetch-Dest": {"image"}}},
		"a frame in another app":         {"GET", http.Header{"Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"iframe"}}},
		"a fetch of a sandboxed page":    {"GET", http.Header{"Origin": {"null"}, "Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"cors"}}},
		"a form of the dashboard":        {"POST", http.Header{"Origin": {dashboard}, "Sec-Fetch-Site": {"same-site"}}},
		"an origin that only ends alike": {"POST", http.Header{"Origin": {host("x") + ".evil.example"}, "Sec-Fetch-Site": {"cross-site"}}},
		"an origin on another port":      {"POST", http.Header{"Origin": {host("x") + ":8080"}, "Sec-Fetch-Site": {"same-site"}}},
		"an origin without TLS":          {"POST", http.Header{"Origin": {strings.Replace(host("x"), "http:", "https:", 1)}}},
	} {
		w.got()
		status, body, header := b.send(c.method, host("code")+"/", c.header)
		if status != http.StatusForbidden || w.got() != nil || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %s %v", name, status, body, header)
		}
	}
	// The app itself must answer a foreign preflight, which needs the app's cookie, and browsers do not send that.
	if status, _, header := w.browser("").send("OPTIONS", host("code")+"/", http.Header{"Origin": {evil}, "Access-Control-Request-Method": {"POST"}}); status != 401 || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a stranger's preflight: %d %v", status, header)
	}
	friend := host("8080")
	status, _, header := w.browser("").send("OPTIONS", host("code")+"/", http.Header{"Origin": {friend}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"x-a"}})
	if status != http.StatusNoContent || header.Get("Access-Control-Allow-Origin") != friend || w.got() != nil {
		t.Errorf("a preflight of the same workspace: %d %v", status, header)
	}
	status, _, header = b.send("POST", host("code")+"/", http.Header{"Origin": {friend}, "Sec-Fetch-Site": {"same-site"}})
	if status != 200 || header.Get("Access-Control-Allow-Origin") != friend || header.Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("a page of the same workspace: %d %v", status, header)
	}
	// What the server answers in an app's place is for pages of the same workspace only.
	for name, c := range map[string]struct {
		browser *browser
		slug    string
		status  int
	}{
		"a port that was never opened": {w.browser("ann"), strconv.Itoa(w.port), http.StatusUnauthorized},
		"a port on which nothing runs": {b, strconv.Itoa(unused), http.StatusBadGateway},
	} {
		if c.status == http.StatusBadGateway {
			c.browser.open(host(c.slug) + "/")
		}
		status, body, header := c.browser.send("GET", host(c.slug)+"/", http.Header{"Origin": {friend}, "Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"cors"}})
		if status != c.status || header.Get("Access-Control-Allow-Origin") != friend || header.Get("Access-Control-Allow-Credentials") != "true" || !slices.Contains(header.Values("Vary"), "Origin") {
			t.Errorf("%s: %d %s %v", name, status, body, header)
		}
		if status == http.StatusUnauthorized && !strings.Contains(body, host(c.slug)) {
			t.Errorf("%s: the remedy is missing: %s", name, body)
		}
		for _, origin := range []string{evil, "null", dashboard, "http://x--other--dev--ann.apps.example.com", "http://x--main--other--ann.apps.example.com", friend + ".evil.example"} {
			status, _, header := c.browser.send("GET", host(c.slug)+"/", http.Header{"Origin": {origin}, "Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"cors"}})
			if header.Get("Access-Control-Allow-Origin")+header.Get("Access-Control-Allow-Credentials") != "" || status == http.StatusOK {
				t.Errorf("%s, for %s: %d %v", name, origin, status, header)
			}
		}
	}
	// By path: the dashboard must never take a workspace's file for its own.
	byPaths := newWorld(t, byPath)
	p := byPaths.browser("ann")
	for dest, mode := range map[string]string{"script": "no-cors", "style": "no-cors", "empty": "cors", "iframe": "navigate", "worker": "same-origin"} {
		h := http.Header{"Sec-Fetch-Site": {"same-origin"}, "Sec-Fetch-Mode": {mode}, "Sec-Fetch-Dest": {dest}}
		if status, body, _ := p.send("GET", dashboard+"/@ann/dev/apps/all/x.js", h); status != http.StatusForbidden {
			t.Errorf("the dashboard loads an app's file as %s: %d %s", dest, status, body)
		}
	}
	// A request that does not open a page never passes with a session.
	if status, _, _ := p.send("POST", dashboard+"/@ann/dev/apps/code/", http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"cors"}}); status != http.StatusForbidden || byPaths.got() != nil {
		t.Errorf("a stranger's request with the dashboard's cookie: %d", status)
	}
}

// TestTokensStay checks that tokens and codes work only where they were issued.
func TestTokensStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser("ann")
	b.open(host("code") + "/")
	from, err := url.Parse(host("code"))
	if err != nil {
		t.Fatal(err)
	}
	cookies := b.jar.Cookies(from)
	if len(cookies) != 1 || cookies[0].Name != "coder_app_token" {
		t.Fatalf("the app's host has cookies %v", cookies)
	}
	code, err := url.Parse(b.last[1])
	if err != nil {
		t.Fatal(err)
	}
	page := http.Header{"Accept": {"text/html"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}
	with := func(cookie string) http.Header {
		h := page.Clone()
		h.Set("Cookie", cookie)
		return h
	}
	for name, c := range map[string]struct {
		address string
		header  http.Header
	}{
		"the token at another app":          {host("start") + "/", with("coder_app_token=" + cookies[0].Value)},
		"the session as a token":            {host("code") + "/", with("coder_app_token=" + w.Token("ann"))},
		"the dashboard's cookie":            {host("code") + "/", with("coder_session_token=" + w.Token("ann"))},
		"a session in the query":            {host("code") + "/?coder_session_token=" + w.Token("ann"), page},
		"two tokens":                        {host("code") + "/", with("coder_app_token=x; coder_app_token=" + cookies[0].Value)},
		"a code in another browser":         {code.String(), page},
		"a code with a guessed state":       {code.String(), with("coder_app_state=guess")},
		"a code at another app":             {host("start") + "/?" + code.RawQuery, page},
		"a code as a token":                 {host("code") + "/", with("coder_app_token=" + code.Query().Get("coder_app_code"))},
		"the token as a code":               {host("code") + "/?coder_app_code=" + cookies[0].Value, page},
		"a token of a path, made for hosts": {dashboard + "/@ann/dev/apps/code/~" + cookies[0].Value + "/", page},
	} {
		w.got()
		stranger := w.browser("")
		status, body, _ := stranger.send("GET", c.address, c.header)
		if w.got() != nil || !strings.Contains(body, "dashboard /login") {
			t.Errorf("%s: %d %s after %v", name, status, body, stranger.last)
		}
	}
}

// TestNoOpenRedirect checks that signed-in users are sent to apps of this server only, and with a code only to apps that
// they may open.
func TestNoOpenRedirect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ann := w.browser("ann")
	ann.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	state := strings.Repeat("a", 43)
	ask := func(b *browser, target string) (int, string) {
		status, _, h := b.open(dashboard + "/api/v2/applications/auth-redirect?" + url.Values{"redirect_uri": {target}, "state": {state}}.Encode())
		return status, h.Get("Location")
	}
	for _, target := range []string{
		"https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "http://evil.example", "",
		host("code") + ".evil.example/", "http://evil.example/?" + host("code"), "http://evil.example#" + host("code"),
		"http://user@code--main--dev--ann.apps.example.com/", "http://evil.example@code--main--dev--ann.apps.example.com/",
		"https://code--main--dev--ann.apps.example.com/", host("code") + ":8080/", "http://apps.example.com/", "http://a.b.apps.example.com/",
		dashboard + "/", "http://x.apps.example.com/", "http://--main--dev--ann.apps.example.com/", host("code") + "/#fragment",
	} {
		if status, location := ask(ann, target); status != http.StatusBadRequest || location != "" {
			t.Errorf("%s: %d to %s", target, status, location)
		}
	}
	if status, location := ask(ann, host("code")+"/x?y=z"); status != http.StatusSeeOther || !strings.HasPrefix(location, host("code")+"/x?y=z&coder_app_code=") {
		t.Errorf("an app of one's own: %d to %s", status, location)
	}
	bob := w.browser("bob")
	bob.client.CheckRedirect = ann.client.CheckRedirect
	if status, location := ask(bob, host("code")+"/"); status != http.StatusNotFound || location != "" {
		t.Errorf("another's app: %d to %s", status, location)
	}
	// No path in an app's address leads to another site either.
	for _, path := range []string{"//evil.example/", "/%2F/evil.example", "/\\evil.example/", "//evil.example/%2e%2e"} {
		stranger := w.browser("")
		stranger.client.CheckRedirect = ann.client.CheckRedirect
		status, _, h := stranger.open(host("code") + path)
		to, err := url.Parse(h.Get("Location"))
		if err != nil || status != http.StatusSeeOther || !strings.HasPrefix(to.Query().Get("redirect_uri"), host("code")+"/") {
			t.Errorf("%s: %d to %s", path, status, h.Get("Location"))
		}
		if status, _, h = stranger.open(host("code") + path + "?coder_app_code=x"); !strings.HasPrefix(h.Get("Location"), "/") || strings.HasPrefix(h.Get("Location"), "//") {
			t.Errorf("%s with a code: %d to %s", path, status, h.Get("Location"))
		}
	}
	byPaths := newWorld(t, byPath)
	stranger := byPaths.browser("")
	stranger.client.CheckRedirect = ann.client.CheckRedirect
	_, _, h := stranger.open(dashboard + "/@ann/dev/apps/code/~x//evil.example/")
	if location := h.Get("Location"); !strings.HasPrefix(location, "/@ann/dev/apps/code/") {
		t.Errorf("by path to %s", location)
	}
}

// TestHosts checks that the requested Host decides what is served, and that no trick makes one host serve another's content.
func TestHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	raw := func(request string) string {
		conn, err := net.Dial("tcp", w.URL.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		return w.named(string(data), "/")
	}
	for _, name := range []string{
		"x.apps.example.com", "a.code--main--dev--ann.apps.example.com", "code--main--dev--ann.apps.example.com.", "CODE--main--dev--ann.APPS.example.com:80",
		".apps.example.com", "all--main--dev--ann--x.apps.example.com", "all--main----ann.apps.example.com",
	} {
		if got := raw("GET /api/v2/users/me HTTP/1.1\r\nHost: " + name + "\r\nCookie: coder_session_token=" + w.Token("ann") + "\r\nConnection: close\r\n\r\n"); strings.Contains(got, "dashboard") || strings.Contains(got, " 200 ") {
			t.Errorf("%s serves the dashboard: %s", name, got)
		}
	}
	for name, want := range map[string]string{
		"code--main--dev--ann.apps.example.com.evil.example": `does not answer to the host code--main--dev--ann.apps.example.com.evil.example."}`,
		"evilapps.example.com":                               `does not answer to the host evilapps.example.com."}`,
		"apps.example.com":                                   `does not answer to the host apps.example.com."}`,
		"coder.example.com":                                  "dashboard /",
	} {
		got := raw("GET / HTTP/1.1\r\nHost: " + name + "\r\nX-Forwarded-Host: all--main--dev--ann.apps.example.com\r\nConnection: close\r\n\r\n")
		if !strings.HasSuffix(strings.TrimSpace(got), want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	// The host of an absolute address in the request line takes precedence.
	if got := raw("GET http://all--main--dev--ann.apps.example.com/x HTTP/1.1\r\nHost: coder.example.com\r\nConnection: close\r\n\r\n"); !strings.HasSuffix(got, "app /x") {
		t.Errorf("an absolute address: %s", got)
	}
	// Names that contain markup are shown as text.
	w.Exec(`INSERT INTO workspace_apps (id, agent_id, slug, display_name, url, external) VALUES ($1, $2, 'docs', '<script>alert(1)</script>', 'https://example.com', true)`, uuid.New(), w.agent)
	if _, body, _ := w.browser("ann").open(host("docs") + "/"); strings.Contains(body, "<script>") || !strings.Contains(body, "&lt;script&gt;") {
		t.Errorf("markup comes through: %s", body)
	}
}
