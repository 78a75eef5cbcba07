package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/credential"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const goodToken = "goodgoodgo-goodgoodgoodgoodgoodgo"

var alice = rbac.Actor{UserID: uuid.MustParse("11111111-1111-4111-8111-111111111111"), Username: "alice"}

func authenticate(r *http.Request) (rbac.Actor, error) {
	if token, _ := credential.Of(r); token == goodToken {
		return alice, nil
	}
	return rbac.Actor{}, fault.New(fault.Unauthenticated, "You are not signed in.")
}

// newMux returns a mux that logs to log.
func newMux(t *testing.T, log io.Writer) *httpapi.Mux {
	t.Helper()
	access, err := url.Parse("https://mesh.example.com")
	if err != nil {
		t.Fatal(err)
	}
	return httpapi.NewMux(httpapi.Options{
		Logger:       slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Authenticate: authenticate,
		AccessURL:    access,
	})
}

func do(mux http.Handler, method, target string, edit func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

func withToken(r *http.Request) { r.Header.Set("Coder-Session-Token", goodToken) }

func decode(t *testing.T, w *httptest.ResponseRecorder) (body sdk.Response) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("answer %d %q is not JSON: %v", w.Code, w.Body, err)
	}
	return body
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		err    error
		status int
		want   sdk.Response
	}{
		{
			"fault", fault.New(fault.Invalid, "The name is bad.").WithDetail("Choose another.").WithField("name", "is bad"), 400,
			sdk.Response{Message: "The name is bad.", Detail: "Choose another.", Validations: []sdk.Validation{{Field: "name", Detail: "is bad"}}},
		},
		{"wrapped fault", fmt.Errorf("read workspace: %w", rbac.NotFound(rbac.Workspace)), 404, sdk.Response{Message: "This workspace does not exist, or you do not have access to it."}},
		{"unavailable", fault.New(fault.Unavailable, "The database is not reachable."), 503, sdk.Response{Message: "The database is not reachable."}},
		{
			"full disk", fmt.Errorf("store file: %w", syscall.ENOSPC), 503,
			sdk.Response{Message: "The server's disk is full.", Detail: "Remove files that are no longer needed, or enlarge it."},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			mux := newMux(t, io.Discard)
			mux.Handle("GET /api/v2/x", rbac.Public, func(http.ResponseWriter, *http.Request) error { return row.err })
			w := do(mux, "GET", "/api/v2/x", nil)
			if w.Code != row.status {
				t.Errorf("status: got %d, want %d", w.Code, row.status)
			}
			if diff := cmp.Diff(row.want, decode(t, w)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestInternalErrors checks that the user sees an id, and that the log has the cause under that id.
func TestInternalErrors(t *testing.T) {
	t.Parallel()
	const secret = "pq: password=hunter2"
	for name, handler := range map[string]httpapi.HandlerFunc{
		"error": func(http.ResponseWriter, *http.Request) error { return errors.New(secret) },
		"fault": func(http.ResponseWriter, *http.Request) error { return fault.New(fault.Internal, secret) },
		"panic": func(http.ResponseWriter, *http.Request) error { panic(secret) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			mux := newMux(t, &log)
			mux.Handle("GET /api/v2/x", rbac.Public, handler)
			w := do(mux, "GET", "/api/v2/x?coder_session_token="+goodToken, nil)
			id := w.Header().Get("X-Coder-Request-Id")
			if w.Code != 500 || id == "" || !strings.Contains(decode(t, w).Detail, id) {
				t.Errorf("answer: got %d %q, want 500 with the id %q", w.Code, w.Body, id)
			}
			if strings.Contains(w.Body.String(), "hunter2") {
				t.Errorf("the answer tells the cause: %q", w.Body)
			}
			if !strings.Contains(log.String(), "hunter2") || !strings.Contains(log.String(), id) {
				t.Errorf("the log lacks the cause or the id: %s", &log)
			}
			if strings.Contains(log.String(), goodToken) {
				t.Errorf("the log has the token: %s", &log)
			}
		})
	}
}

func TestHeadersAndActor(t *testing.T) {
	t.Parallel()
	mux := newMux(t, io.Discard)
	mux.Handle("GET /api/v2/whoami", rbac.SignedIn, func(w http.ResponseWriter, r *http.Request) error {
		return httpapi.Write(w, http.StatusOK, httpapi.ActorFrom(r.Context()).Username)
	})
	for name, edit := range map[string]func(*http.Request){
		"header": withToken,
		"cookie": func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "coder_session_token", Value: goodToken}) },
		"query":  func(r *http.Request) { r.URL.RawQuery = "coder_session_token=" + goodToken },
		"bearer": func(r *http.Request) { r.Header.Set("Authorization", "bearer "+goodToken) },
		"header beside a proxy's own": func(r *http.Request) {
			r.Header.Set("Coder-Session-Token", goodToken)
			r.Header.Set("Authorization", "Bearer eyJhbGciOi")
		},
		"cookie beside a proxy's own": func(r *http.Request) {
			r.AddCookie(&http.Cookie{Name: "coder_session_token", Value: goodToken})
			r.Header.Set("Authorization", "Bearer eyJhbGciOi")
		},
	} {
		w := do(mux, "GET", "/api/v2/whoami", edit)
		if w.Code != 200 || strings.TrimSpace(w.Body.String()) != `"alice"` {
			t.Errorf("token by %s: got %d %q", name, w.Code, w.Body)
		}
		if got := w.Header().Get("X-Coder-Build-Version"); got != buildinfo.Version() {
			t.Errorf("X-Coder-Build-Version: got %q", got)
		}
	}
	if w := do(mux, "GET", "/api/v2/whoami", nil); w.Code != 401 {
		t.Errorf("without a token: got %d", w.Code)
	}
}

func TestPagesAreConfined(t *testing.T) {
	t.Parallel()
	mux := newMux(t, io.Discard)
	mux.Handle("GET /page", rbac.Public, func(http.ResponseWriter, *http.Request) error { return nil })
	for _, target := range []string{"/page", "/nothing", "/api/v2/nothing"} {
		h := do(mux, "GET", target, nil).Header()
		policy := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'self'", "script-src 'self';", "frame-ancestors 'none'", "object-src 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %s", target, policy, want)
			}
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: headers %v", target, h)
		}
	}
}

func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	mux := newMux(t, io.Discard)
	mux.Handle("GET /api/v2/users", rbac.Public, func(http.ResponseWriter, *http.Request) error { return nil })
	mux.Handle("/", rbac.Public, func(w http.ResponseWriter, _ *http.Request) error { return httpapi.Write(w, 200, "page") })
	mux.Handle("PUT /api/v2/users", rbac.Public, func(http.ResponseWriter, *http.Request) error { return nil }, httpapi.WithAudit(httpapi.Audit{Exempt: "a test"}))
	for target, want := range map[string]struct {
		status int
		word   string
		allow  string
	}{
		"GET /api/v2/nonsense": {404, "/api/v2/nonsense", ""}, "DELETE /api/v2/users": {405, "GET, PUT", "GET, PUT"},
	} {
		method, path, _ := strings.Cut(target, " ")
		w := do(mux, method, path, nil)
		if body := decode(t, w); w.Code != want.status || !strings.Contains(body.Message, want.word) || w.Header().Get("Allow") != want.allow {
			t.Errorf("%s: got %d %+v, allowed %q", target, w.Code, body, w.Header().Get("Allow"))
		}
	}
	if w := do(mux, "GET", "/workspaces", nil); w.Code != 200 {
		t.Errorf("a page: got %d", w.Code)
	}
}

// TestCrossOrigin checks that a page of another site cannot use the session of the browser's user.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	mux := newMux(t, io.Discard)
	ok := func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(204); return nil }
	mux.Handle("POST /api/v2/x", rbac.SignedIn, ok)
	mux.Handle("GET /api/v2/x", rbac.SignedIn, ok)
	cookie := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "coder_session_token", Value: goodToken}) }
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	evil, own := header("Origin", "https://evil.example"), header("Origin", "http://example.com") // httptest's host
	socket := header("Upgrade", "websocket")
	for _, row := range []struct {
		name   string
		method string
		edits  []func(*http.Request)
		want   int
	}{
		{"program without origin", "POST", []func(*http.Request){withToken}, 204},
		{"own page", "POST", []func(*http.Request){cookie, own}, 204},
		{"page at the access URL", "POST", []func(*http.Request){cookie, header("Origin", "https://mesh.example.com")}, 204},
		{"another site's form", "POST", []func(*http.Request){cookie, evil}, 403},
		{"the same by fetch metadata", "POST", []func(*http.Request){cookie, header("Sec-Fetch-Site", "cross-site")}, 403},
		{"another port of this host", "POST", []func(*http.Request){cookie, header("Sec-Fetch-Site", "same-site")}, 403},
		{"another site with the token itself", "POST", []func(*http.Request){withToken, evil}, 204},
		{"another site with a made-up query token", "POST", []func(*http.Request){cookie, evil, func(r *http.Request) { r.URL.RawQuery = "coder_session_token=x" }}, 401},
		{"another site reads", "GET", []func(*http.Request){cookie, evil}, 204}, // the browser withholds the answer from it
		{"another site opens a websocket", "GET", []func(*http.Request){cookie, evil, socket}, 403},
		{"own page opens a websocket", "GET", []func(*http.Request){cookie, own, socket}, 204},
	} {
		w := do(mux, row.method, "/api/v2/x", func(r *http.Request) {
			for _, edit := range row.edits {
				edit(r)
			}
		})
		if w.Code != row.want {
			t.Errorf("%s: got %d, want %d", row.name, w.Code, row.want)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	type body struct {
		Name  string `json:"name"`
		Count int    `json:"count"`
	}
	for _, row := range []struct {
		name, text string
		want       fault.Code
		field      string
	}{
		{"good", `{"name":"x","count":2,"newer":true}`, "", ""},
		{"empty", ``, fault.Invalid, ""},
		{"not JSON", `name=x`, fault.Invalid, ""},
		{"cut off", `{"name":"x"`, fault.Invalid, ""},
		{"wrong type", `{"count":"two"}`, fault.Invalid, "count"},
		{"two values", `{} {}`, fault.Invalid, ""},
		{"too large", `{"name":"` + strings.Repeat("x", 1<<20) + `"}`, fault.TooLarge, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var got body
			err := httpapi.Read(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(row.text)), &got)
			if fault.CodeOf(err) != row.want {
				t.Fatalf("got %v, want %q", err, row.want)
			}
			if row.field != "" && (len(fault.As(err).Fields) != 1 || fault.As(err).Fields[0].Field != row.field) {
				t.Errorf("fields: got %+v, want %s", fault.As(err).Fields, row.field)
			}
			if row.want == "" && got != (body{"x", 2}) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// FuzzRead checks that everything a client sends is either read or refused as the client's fault, never an internal error.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{`{"name":"x"}`, `[]`, `null`, `{"time":"yesterday"}`, `{"roles":[1]}`, "\x00", `{"a":{"b":[{}]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v struct {
			Name  string         `json:"name"`
			Time  time.Time      `json:"time"`
			ID    uuid.UUID      `json:"id"`
			Roles []string       `json:"roles"`
			A     map[string]any `json:"a"`
		}
		err := httpapi.Read(httptest.NewRecorder(), httptest.NewRequest("POST", "/", bytes.NewReader(data)), &v)
		if code := fault.CodeOf(err); err != nil && code != fault.Invalid && code != fault.TooLarge {
			t.Errorf("%q: got %v", data, err)
		}
	})
}

func TestQueryAndPath(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "/?limit=5&many=900&bad=x&flag&on=true", nil)
	r.SetPathValue("good", "11111111-1111-4111-8111-111111111111")
	r.SetPathValue("bad", "{11111111-1111-4111-8111-111111111111}")
	if n, err := httpapi.QueryInt(r, "limit", 1, 10); n != 5 || err != nil {
		t.Errorf("limit: %d, %v", n, err)
	}
	if n, err := httpapi.QueryInt(r, "absent", 7, 10); n != 7 || err != nil {
		t.Errorf("absent: %d, %v", n, err)
	}
	for _, name := range []string{"many", "bad"} {
		if _, err := httpapi.QueryInt(r, name, 1, 10); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]bool{"flag": true, "on": true, "absent": false} {
		if got, err := httpapi.QueryBool(r, name); got != want || err != nil {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
	if _, err := httpapi.PathUUID(r, "good"); err != nil {
		t.Error(err)
	}
	if _, err := httpapi.PathUUID(r, "bad"); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("bad id: %v", err)
	}
}

// TestClientAddr checks that handlers see the address that the front of the process has decided.
func TestClientAddr(t *testing.T) {
	t.Parallel()
	mux := newMux(t, io.Discard)
	mux.Handle("GET /addr", rbac.Public, func(w http.ResponseWriter, r *http.Request) error {
		_, err := io.WriteString(w, httpapi.ClientAddr(r.Context()).String())
		return err
	})
	proxies := clientaddr.Proxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	forwarded := func(r *http.Request) {
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("X-Forwarded-For", "198.51.100.1")
	}
	if got := do(proxies.Handler(mux), "GET", "/addr", forwarded).Body.String(); got != "198.51.100.1" {
		t.Errorf("behind a trusted proxy: got %s", got)
	}
	if got := do(mux, "GET", "/addr", forwarded).Body.String(); got != "10.0.0.1" {
		t.Errorf("without one: got %s", got)
	}
}

// TestMetrics checks that requests are counted by their route, however many addresses they ask for.
func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	mux := httpapi.NewMux(httpapi.Options{Logger: slog.New(slog.DiscardHandler), Authenticate: authenticate, Metrics: registry})
	mux.Handle("GET /api/v2/things/{thing}", rbac.SignedIn, func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(204); return nil })
	mux.Handle("/", rbac.Public, func(http.ResponseWriter, *http.Request) error { panic("broken") })
	for _, path := range []string{"/api/v2/things/a", "/api/v2/things/b/", "/api/v2/none", "/api/v2/none/2"} {
		do(mux, "GET", path, withToken)
	}
	do(mux, "GET", "/api/v2/things/a", nil)
	do(mux, "BREW", "/page", nil)
	do(mux, "GET", "/api/v2/things/a", func(r *http.Request) { r.Header.Set("Upgrade", "websocket") })
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "coderd_api_requests_processed_total") || strings.HasPrefix(line, "coderd_api_concurrent") || strings.Contains(line, "_count") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		`coderd_api_concurrent_requests{method="GET",path="/api/v2/things/{thing}"} 0`,
		`coderd_api_concurrent_requests{method="GET",path="unmatched"} 0`,
		`coderd_api_concurrent_requests{method="other",path="/"} 0`,
		`coderd_api_concurrent_websockets{path="/api/v2/things/{thing}"} 0`,
		`coderd_api_request_latencies_seconds_count{method="GET",path="/api/v2/things/{thing}"} 3`,
		`coderd_api_request_latencies_seconds_count{method="GET",path="unmatched"} 2`,
		`coderd_api_request_latencies_seconds_count{method="other",path="/"} 1`,
		`coderd_api_requests_processed_total{code="204",method="GET",path="/api/v2/things/{thing}"} 2`,
		`coderd_api_requests_processed_total{code="401",method="GET",path="/api/v2/things/{thing}"} 2`,
		`coderd_api_requests_processed_total{code="404",method="GET",path="unmatched"} 2`,
		`coderd_api_requests_processed_total{code="500",method="other",path="/"} 1`,
		`coderd_api_websocket_durations_seconds_count{path="/api/v2/things/{thing}"} 1`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestStreams checks that a handler can flush and hijack through the mux.
func TestStreams(t *testing.T) {
	t.Parallel()
	mux := newMux(t, io.Discard)
	mux.Handle("GET /flush", rbac.Public, func(w http.ResponseWriter, r *http.Request) error {
		if _, err := io.WriteString(w, "first\n"); err != nil {
			return err
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return nil
	})
	mux.Handle("GET /hijack", rbac.Public, func(w http.ResponseWriter, _ *http.Request) error {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nraw")
		return errors.Join(err, errors.New("after hijacking nothing is answered"))
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()

	resp, err := srv.Client().Get(srv.URL + "/flush")
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if line != "first\n" || err != nil {
		t.Errorf("flushed: got %q, %v", line, err)
	}
	resp.Body.Close()

	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /hijack HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(all), "\r\n\r\nraw") {
		t.Errorf("hijacked: got %q, %v", all, err)
	}
}

// recorder is a test that records its complaints.
type recorder struct{ complaints []string }

func (*recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.complaints = append(r.complaints, fmt.Sprintf(format, args...))
}

func TestGuard(t *testing.T) {
	t.Parallel()
	ok := func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(204); return nil }
	mux := newMux(t, io.Discard)
	mux.Handle("GET /api/v2/open", rbac.Public, ok)
	mux.Handle("PUT /api/v2/things/{thing}/{rest...}", rbac.SignedIn, ok)
	coderdtest.CheckPermissions(t, mux, "GET /api/v2/open")

	var r recorder
	coderdtest.CheckPermissions(&r, mux, "PUT /api/v2/things/{thing}/{rest...}", "GET /api/v2/gone")
	if len(r.complaints) != 4 {
		t.Errorf("the guard overlooks something: %q", r.complaints)
	}
	defer func() {
		if recover() == nil {
			t.Error("a route without a permission was accepted")
		}
	}()
	mux.Handle("GET /api/v2/forgotten", rbac.Permission{}, ok)
}
