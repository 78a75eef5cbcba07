package appproxy_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	dashboard = "http://coder.example.com"
	appHost   = "code--main--dev--ann.apps.example.com"
	appToken  = "token-of-the-app"
	appPath   = "/@ann/dev.main/apps/code/"
)

// judge lets those in who show appToken, a session or the dashboard's cookie.
type judge struct {
	app      appproxy.App
	signedIn bool // visitors without access are signed in
	dial     string
	asked    []appproxy.Question
	redeemed []appproxy.Exchange
}

func (j *judge) Decide(_ *http.Request, q appproxy.Question) (appproxy.Answer, error) {
	j.asked = append(j.asked, q)
	if q.Proof.Token != appToken && q.Proof.Kind != appproxy.ByDashboard {
		return appproxy.Answer{SignedIn: j.signedIn}, nil
	}
	app := j.app
	return appproxy.Answer{App: &app, SignedIn: true, Token: appToken, Route: "agent", By: q.Proof.Kind}, nil
}

func (j *judge) Redeem(_ context.Context, x appproxy.Exchange) (secret.Token, error) {
	j.redeemed = append(j.redeemed, x)
	if x.Code != "good" {
		return "", nil
	}
	return appToken, nil
}

func (j *judge) Enter(r *http.Request, _ appproxy.Answer) (*appproxy.Visit, error) {
	return &appproxy.Visit{Context: r.Context(), Leave: func() {}}, nil
}

func (j *judge) Dial(ctx context.Context, _ string, _ uint16) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", j.dial)
}

// proxy serves an app that answers with what it was asked, and sends the header that a test wants.
type proxy struct {
	*judge
	handler http.Handler
	idle    func() // ends idle connections
	send    http.Header
	got     *http.Request // by the app
}

func newProxy(t *testing.T, tune ...func(*appproxy.Options)) *proxy {
	t.Helper()
	p := &proxy{judge: &judge{app: appproxy.App{Place: appproxy.Place{Owner: "ann", Workspace: "dev", Agent: "main", Slug: "code"}, Name: "Code", Running: true, Port: 8080}}}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.got = r
		for name, values := range p.send {
			w.Header()[name] = values
		}
		io.WriteString(w, "the app")
	}))
	t.Cleanup(app.Close)
	p.dial = app.Listener.Addr().String()
	own, err := url.Parse(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	opts := appproxy.Options{Logger: slog.New(slog.DiscardHandler), Judge: p.judge, URL: own, Dashboard: own, WildcardHost: "*.apps.example.com"}
	for _, f := range tune {
		f(&opts)
	}
	h := appproxy.New(opts)
	t.Cleanup(h.Close)
	p.idle = h.Close
	p.handler = h.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the dashboard") }))
	return p
}

// byPath makes a deployment that has no hosts for apps.
func byPath(o *appproxy.Options) { o.WildcardHost = "" }

// openPage is the header of a browser that opens a page, and cookie the one of an app's host.
var (
	openPage = []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Accept", "text/html"}
	cookie   = []string{"Cookie", "coder_app_token=" + appToken}
)

// ask sends a request with a header, given as names and values.
func (p *proxy) ask(method, target string, header ...[]string) *http.Response {
	p.got, p.asked, p.redeemed = nil, nil, nil
	r := httptest.NewRequest(method, target, nil)
	for _, pairs := range header {
		for pair := range slices.Chunk(pairs, 2) {
			r.Header.Add(pair[0], pair[1])
		}
	}
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestWhoseHost checks which requests are for apps.
func TestWhoseHost(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	for target, want := range map[string]string{
		"http://coder.example.com/":                                                 "the dashboard",
		"http://coder.example.com/@ann/dev":                                         "the dashboard",
		"http://coder.example.com/@ann/dev/terminal/code":                           "the dashboard",
		"http://elsewhere.example.com/":                                             "the dashboard",
		"http://" + appHost + "/":                                                   "the app",
		"http://CODE--main--dev--ann.apps.example.com:8080/":                        "the app",
		"http://code--main--dev--ann.apps.example.com./":                            "the app",
		"http://code--main--dev.apps.example.com/":                                  "There is no such app",
		"http://code----dev--ann.apps.example.com/":                                 "There is no such app",
		"http://x.code--main--dev--ann.apps.example.com/":                           "There is no such app",
		"http://code--main--dev--" + strings.Repeat("a", 60) + ".apps.example.com/": "There is no such app",
	} {
		if got := body(t, p.ask("GET", target, cookie)); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
	p = newProxy(t, byPath)
	if got := body(t, p.ask("GET", "http://"+appHost+"/", cookie)); got != "the dashboard" {
		t.Errorf("without hosts for apps: got %q", got)
	}
}

// TestIntended checks which requests with a visitor's cookie reach the app: those that the visitor intends. Other sites, and the apps of other
// workspaces, must not send requests in the visitor's name.
func TestIntended(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	frame := []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe", "Accept", "text/html"}
	for _, tc := range []struct {
		name   string
		method string
		header []string
		ok     bool
	}{
		{"a program", "GET", nil, true},
		{"the app's page", "POST", []string{"Origin", "http://" + appHost, "Sec-Fetch-Site", "same-origin"}, true},
		{"a page of the workspace", "POST", []string{"Origin", "http://8080--main--dev--ann.apps.example.com"}, true},
		{"a page of another agent", "POST", []string{"Origin", "http://code--other--dev--ann.apps.example.com"}, false},
		{"a page of another workspace", "POST", []string{"Origin", "http://code--main--other--ann.apps.example.com"}, false},
		{"a page of another owner", "POST", []string{"Origin", "http://code--main--dev--eve.apps.example.com"}, false},
		{"a page with another scheme", "POST", []string{"Origin", "https://8080--main--dev--ann.apps.example.com"}, false},
		{"a page of another port", "POST", []string{"Origin", "http://8080--main--dev--ann.apps.example.com:81"}, false},
		{"the dashboard", "POST", []string{"Origin", dashboard}, false},
		{"a page elsewhere", "POST", []string{"Origin", "http://evil.example.com"}, false},
		{"a sandboxed page", "POST", []string{"Origin", "null"}, false},
		{"the app's own file", "GET", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "no-cors"}, true},
		{"the address bar", "GET", append([]string{"Sec-Fetch-Site", "none"}, openPage...), true},
		{"a link elsewhere", "GET", append([]string{"Sec-Fetch-Site", "cross-site"}, openPage...), true},
		{"a link of another app", "HEAD", append([]string{"Sec-Fetch-Site", "same-site"}, openPage...), true},
		{"a form elsewhere", "POST", append([]string{"Sec-Fetch-Site", "cross-site"}, openPage...), false},
		{"a frame elsewhere", "GET", append([]string{"Sec-Fetch-Site", "cross-site"}, frame...), false},
		{"a script elsewhere", "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"}, false},
		{"a script of another app", "GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"}, false},
		{"a websocket elsewhere", "GET", []string{"Upgrade", "websocket", "Accept", "text/html", "Sec-Fetch-Site", "cross-site"}, false},
	} {
		resp := p.ask(tc.method, "http://"+appHost+"/x", cookie, tc.header)
		if reached := p.got != nil; reached != tc.ok || !tc.ok && resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: the app was reached %t, status %d", tc.name, reached, resp.StatusCode)
		}
	}
	// No page can make a browser send this header, so a session in it comes from a program.
	if p.ask("POST", "http://"+appHost+"/x", []string{"Coder-Session-Token", appToken, "Origin", "http://evil.example.com"}); p.got == nil {
		t.Error("a program with a session does not reach the app")
	}
}

// TestSharing checks which pages may read an app's answers: those of the same workspace.
func TestSharing(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	friend := "http://8080--main--dev--ann.apps.example.com"
	for origin, want := range map[string]string{friend: friend, "http://code--main--dev--eve.apps.example.com": "", "http://" + appHost: ""} {
		ask := []string{"Origin", origin, "Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "x-one"}
		resp := p.ask("OPTIONS", "http://"+appHost+"/", ask)
		if got := resp.Header.Get("Access-Control-Allow-Origin"); got != want || want != "" && (resp.StatusCode != http.StatusNoContent ||
			resp.Header.Get("Access-Control-Allow-Methods") != "PUT" || resp.Header.Get("Access-Control-Allow-Headers") != "x-one") {
			t.Errorf("preflight from %s: got %d %v", origin, resp.StatusCode, resp.Header)
		}
		if p.got != nil || want != "" && (body(t, resp) != "" || len(p.asked) > 0) {
			t.Errorf("preflight from %s: more than the preflight was answered", origin)
		}
		if got := p.ask("GET", "http://"+appHost+"/", cookie, ask[:2]).Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("answer to %s: readable by %q, want %q", origin, got, want)
		}
	}
	p.send = http.Header{"Access-Control-Allow-Origin": {"*"}}
	if got := p.ask("GET", "http://"+appHost+"/", cookie, []string{"Origin", friend}).Header.Get("Access-Control-Allow-Origin"); got != "*" {
		t.Errorf("the app's own header became %q", got)
	}
	if p.ask("OPTIONS", "http://"+appHost+"/", cookie, []string{"Origin", friend}); p.got == nil {
		t.Error("a request with the method OPTIONS that is no preflight does not reach the app")
	}
}

// TestStrangers checks what visitors get who may not open the app.
func TestStrangers(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	resp := p.ask("GET", "http://"+appHost+"/x?y=1&coder_session_token=z", openPage)
	to, err := resp.Location()
	if err != nil || resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("got %d, %v", resp.StatusCode, err)
	}
	cookies := resp.Cookies()
	if to.Host != "coder.example.com" || to.Path != appproxy.AuthPath || to.Query().Get("redirect_uri") != "http://"+appHost+"/x?y=1" ||
		len(to.Query().Get("state")) != appproxy.StateLength || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].Domain != "" {
		t.Errorf("sent to %v with %v", to, cookies)
	}
	for name, header := range map[string][]string{
		"a program":      {},
		"another token":  {"Cookie", "coder_app_token=stolen"},
		"two tokens":     {"Cookie", "coder_app_token=" + appToken + "; coder_app_token=planted"},
		"a page's image": {"Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image", "Accept", "text/html"},
	} {
		if resp := p.ask("GET", "http://"+appHost+"/", header); resp.StatusCode != http.StatusUnauthorized || p.got != nil {
			t.Errorf("%s: got %d", name, resp.StatusCode)
		}
	}
	p.signedIn = true
	if resp := p.ask("GET", "http://"+appHost+"/", openPage); resp.StatusCode != http.StatusNotFound {
		t.Errorf("signed in without access: got %d", resp.StatusCode)
	}
}

// TestCode checks that a code works only in the browser that asked for it.
func TestCode(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	state := []string{"Cookie", "coder_app_state=abc"}
	target := func(code string) string { return "http://" + appHost + "/x?y=1&coder_app_code=" + code }
	for _, tc := range []struct {
		name            string
		code            string
		header          [][]string
		redeemed, token bool
	}{
		{"this browser", "good", [][]string{openPage, state}, true, true},
		{"another browser", "good", [][]string{openPage}, false, false},
		{"a stale code", "stale", [][]string{openPage, state}, true, false},
	} {
		resp := p.ask("GET", target(tc.code), tc.header...)
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/x?y=1" {
			t.Errorf("%s: got %d, to %q", tc.name, resp.StatusCode, resp.Header.Get("Location"))
		}
		token := slices.ContainsFunc(resp.Cookies(), func(c *http.Cookie) bool { return c.Name == "coder_app_token" && c.Value == appToken && c.HttpOnly })
		if len(p.redeemed) == 1 != tc.redeemed || token != tc.token {
			t.Errorf("%s: redeemed %v, token %t", tc.name, p.redeemed, token)
		}
	}
	if p.ask("GET", target("good"), state, cookie, []string{"Sec-Fetch-Mode", "no-cors"}); len(p.redeemed) != 0 || p.got == nil {
		t.Errorf("a page's own request redeemed %v", p.redeemed)
	} else if p.got.URL.RawQuery != "y=1" {
		t.Errorf("the app was asked for %q", p.got.URL.RawQuery)
	}
}

// TestSecretsStayHere checks that an app sees nothing with which it could act as the visitor, and sets nothing beyond its own host.
func TestSecretsStayHere(t *testing.T) {
	t.Parallel()
	session := "AbCdEfGhIj-AbCdEfGhIjKlMnOpQrStUv"
	p := newProxy(t)
	p.send = http.Header{
		"Set-Cookie": {
			"mine=1; Path=/; Domain=example.com; HttpOnly", "coder_session_token=x", "__Host-coder_session_token=x", "coder_app_token=x", "coder_app_state=x", "=x",
		},
		"Strict-Transport-Security": {"max-age=1"}, "Clear-Site-Data": {`"cookies"`}, "X-Own": {"1"},
	}
	resp := p.ask("GET", "http://"+appHost+"/a%2Fb?q=1&coder_session_token=x", cookie, []string{
		"Cookie", "theirs=1; coder_session_token=" + session + "; __Host-coder_session_token=x; coder_app_state=y",
		"Authorization", "Bearer " + session, "Forwarded", "for=1.2.3.4", "X-Real-Ip", "1.2.3.4", "X-Forwarded-For", "1.2.3.4",
	})
	if p.got == nil {
		t.Fatalf("got %d", resp.StatusCode)
	}
	if got := p.got.RequestURI; got != "/a%2Fb?q=1" {
		t.Errorf("the app was asked for %q", got)
	}
	if got := p.got.Header.Values("Cookie"); !slices.Equal(got, []string{"theirs=1"}) {
		t.Errorf("the app saw the cookies %q", got)
	}
	for _, name := range []string{"Authorization", "Coder-Session-Token", "Forwarded", "X-Real-Ip"} {
		if got := p.got.Header.Get(name); got != "" {
			t.Errorf("the app saw %s: %s", name, got)
		}
	}
	if got := p.got.Header.Get("X-Forwarded-For"); strings.Contains(got, "1.2.3.4") {
		t.Errorf("the visitor chose the address %q", got)
	}
	if p.got.Host != appHost {
		t.Errorf("the app saw the host %q", p.got.Host)
	}
	renewed := "coder_app_token=" + appToken + "; Path=/; Max-Age=3600; HttpOnly; SameSite=Lax"
	if got := resp.Header.Values("Set-Cookie"); !slices.Equal(got, []string{renewed, "mine=1; Path=/; HttpOnly"}) {
		t.Errorf("the browser got the cookies %q", got)
	}
	if resp.Header.Get("Strict-Transport-Security")+resp.Header.Get("Clear-Site-Data") != "" || resp.Header.Get("X-Own") != "1" {
		t.Errorf("the browser got %v", resp.Header)
	}
	if got := p.got.Header.Get("Accept-Encoding"); got != "" {
		t.Errorf("the app was asked for the encoding %q, and the visitor accepts none", got)
	}
	if p.ask("GET", "http://"+appHost+"/", cookie, []string{"Authorization", "Basic YTpi"}); p.got.Header.Get("Authorization") != "Basic YTpi" {
		t.Error("the app does not see its own password")
	}
}

// TestByPath checks that apps below the dashboard's host have no part in its origin.
func TestByPath(t *testing.T) {
	t.Parallel()
	p := newProxy(t, byPath)
	p.send = http.Header{"Set-Cookie": {"a=b"}, "Service-Worker-Allowed": {"/"}, "Access-Control-Allow-Credentials": {"true"}, "Content-Security-Policy": {"default-src *"}}
	withToken := dashboard + appPath + "~" + appToken + "/"
	resp := p.ask("GET", withToken+"x?q=1", []string{"Cookie", "coder_session_token=secret", "Origin", "null"})
	if p.got == nil {
		t.Fatalf("got %d", resp.StatusCode)
	}
	if p.got.RequestURI != "/x?q=1" || p.got.Header.Get("Cookie")+p.got.Header.Get("Origin") != "" || p.got.Header.Get("X-Forwarded-Prefix") != appPath+"~"+appToken {
		t.Errorf("the app was asked for %q with %v", p.got.RequestURI, p.got.Header)
	}
	policies := resp.Header.Values("Content-Security-Policy")
	if !slices.ContainsFunc(policies, func(s string) bool {
		return strings.HasPrefix(s, "sandbox ") && !strings.Contains(s, "allow-same-origin")
	}) ||
		!slices.Contains(policies, "default-src *") {
		t.Errorf("the page has the policies %q", policies)
	}
	for _, name := range []string{"Set-Cookie", "Service-Worker-Allowed", "Access-Control-Allow-Credentials"} {
		if got := resp.Header.Get(name); got != "" {
			t.Errorf("the browser got %s: %s", name, got)
		}
	}
	if resp.Header.Get("Referrer-Policy") != "no-referrer" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("the browser got %v", resp.Header)
	}

	session := []string{"Cookie", "coder_session_token=secret"}
	for _, tc := range []struct {
		name   string
		target string
		header [][]string
		status int
		to     string
	}{
		{"opened from the dashboard", appPath + "x?q=1", [][]string{session, openPage}, 303, appPath + "~" + appToken + "/x?q=1"},
		{"loaded by the dashboard", appPath + "x", [][]string{session, {"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}}, 403, ""},
		{"loaded by another site", appPath + "x", [][]string{session, {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}}, 403, ""},
		{"a file, with the token, loaded by the dashboard", appPath + "~" + appToken + "/x", [][]string{{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}}, 403, ""},
		{"without a session", appPath + "x?q=1", [][]string{openPage}, 303, "/login?" + url.Values{"redirect": {appPath + "x?q=1"}}.Encode()},
		{"with an old token", appPath + "~old/x?q=1", [][]string{openPage}, 303, appPath + "x?q=1"},
		{"a program with an old token", appPath + "~old/x", nil, 401, ""},
		{"without the slash", strings.TrimSuffix(appPath, "/"), [][]string{{"Coder-Session-Token", appToken}}, 303, appPath},
		{"without the slash after the token", appPath + "~" + appToken, nil, 303, appPath + "~" + appToken + "/"},
	} {
		resp := p.ask("GET", dashboard+tc.target, tc.header...)
		if resp.StatusCode != tc.status || resp.Header.Get("Location") != tc.to || p.got != nil {
			t.Errorf("%s: got %d to %q, want %d to %q", tc.name, resp.StatusCode, resp.Header.Get("Location"), tc.status, tc.to)
		}
	}
	p.signedIn = true
	if resp := p.ask("GET", dashboard+appPath+"~old/", openPage); resp.StatusCode != http.StatusNotFound {
		t.Errorf("signed in without access: got %d", resp.StatusCode)
	}
}

// TestPathsLeadToHosts checks that addresses by path redirect to an app's host if there are hosts, and are refused if they are turned off.
func TestPathsLeadToHosts(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	resp := p.ask("GET", dashboard+appPath+"x?q=1", []string{"Coder-Session-Token", appToken})
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != "http://"+appHost+"/x?q=1" {
		t.Errorf("got %d to %q", resp.StatusCode, to)
	}
	p.app.Place.Workspace = strings.Repeat("w", 60)
	if resp := p.ask("GET", dashboard+appPath, []string{"Coder-Session-Token", appToken}); resp.StatusCode != http.StatusNotFound {
		t.Errorf("too long for a host: got %d", resp.StatusCode)
	}
	p = newProxy(t, byPath, func(o *appproxy.Options) { o.NoPaths = true })
	if resp := p.ask("GET", dashboard+appPath, []string{"Coder-Session-Token", appToken}); resp.StatusCode != http.StatusNotFound || len(p.asked) != 0 {
		t.Errorf("turned off: got %d", resp.StatusCode)
	}
}

// TestApps checks what visitors see of apps that cannot be opened, or begin elsewhere.
func TestApps(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	p.app.Start = "start?x=1"
	if resp := p.ask("GET", "http://"+appHost+"/", cookie, openPage); resp.Header.Get("Location") != "/start?x=1" {
		t.Errorf("the app begins at %q", resp.Header.Get("Location"))
	}
	for _, target := range []string{"/other", "/?y=1"} {
		if p.ask("GET", "http://"+appHost+target, cookie, openPage); p.got == nil {
			t.Errorf("%s leads to the beginning", target)
		}
	}
	if p.ask("GET", "http://"+appHost+"/", cookie); p.got == nil {
		t.Error("a program is led to the beginning")
	}
	encrypted := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "encrypted") }))
	defer encrypted.Close()
	p.dial, p.app.TLS = encrypted.Listener.Addr().String(), true
	if got := body(t, p.ask("GET", "http://"+appHost+"/other", cookie)); got != "encrypted" {
		t.Errorf("an app with TLS and a certificate of its own: got %q", got)
	}
	p.idle()
	p.dial, p.app.TLS = "127.0.0.1:1", false
	if resp := p.ask("GET", "http://"+appHost+"/other", cookie); resp.StatusCode != http.StatusBadGateway || !strings.Contains(body(t, resp), "Nothing listens on port 8080") {
		t.Errorf("nothing listens: got %d", resp.StatusCode)
	}
	p.app.Running = false
	if resp := p.ask("GET", "http://"+appHost+"/", cookie); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("stopped: got %d", resp.StatusCode)
	}
	p.app.Unusable = "It is a command."
	if resp := p.ask("GET", "http://"+appHost+"/", cookie); resp.StatusCode != http.StatusNotFound || !strings.Contains(body(t, resp), "It is a command.") {
		t.Errorf("unusable: got %d", resp.StatusCode)
	}
}

// TestAway checks that a host without the dashboard's sessions asks the dashboard, and takes no session itself.
func TestAway(t *testing.T) {
	t.Parallel()
	away := func(o *appproxy.Options) {
		elsewhere := *o.URL
		elsewhere.Host = "region.example.com"
		o.URL, o.WildcardHost = &elsewhere, ""
	}
	p := newProxy(t, away)
	resp := p.ask("GET", "http://region.example.com"+appPath+"x", openPage)
	if to, err := resp.Location(); err != nil || to.Host != "coder.example.com" || to.Query().Get("redirect_uri") != "http://region.example.com"+appPath+"x" {
		t.Errorf("got %d to %v, %v", resp.StatusCode, to, err)
	}
	for _, header := range [][]string{{"Coder-Session-Token", appToken}, {"Cookie", "coder_session_token=secret"}} {
		if p.ask("GET", "http://region.example.com"+appPath+"x", header); p.got != nil || p.asked[0].Proof != (appproxy.Proof{}) {
			t.Errorf("%v: the judge was asked %+v", header, p.asked)
		}
	}
	resp = p.ask("GET", "http://region.example.com"+appPath+"x?y=1&coder_app_code=good", openPage, []string{"Cookie", "coder_app_state=abc"})
	if to := resp.Header.Get("Location"); to != appPath+"~"+appToken+"/x?y=1" || len(p.redeemed) != 1 || !p.redeemed[0].ByPath {
		t.Errorf("with a code: sent to %q", to)
	}
}
