package site_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/codermesh/codermesh/v2/site"
)

func packed(t *testing.T, text string) *fstest.MapFile {
	t.Helper()
	var out strings.Builder
	zw := gzip.NewWriter(&out)
	if _, err := io.WriteString(zw, text); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return &fstest.MapFile{Data: []byte(out.String())}
}

func handler(t *testing.T) *site.Handler {
	t.Helper()
	h, err := site.NewFrom(fstest.MapFS{
		".gitkeep":            {},
		"index.html.gz":       packed(t, "the page"),
		"index.html.br":       {Data: []byte("page in brotli")},
		"theme.js.gz":         packed(t, "theme"),
		"theme.js.br":         {Data: []byte("theme in brotli")},
		"assets/a-123.css.gz": packed(t, "css"),
		"assets/a-123.css.br": {Data: []byte("css in brotli")},
		"assets/p-123.webp":   {Data: []byte("a picture")},
		"open-in-coder.svg":   {Data: []byte("a badge")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func get(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestServes(t *testing.T) {
	t.Parallel()
	h := handler(t)
	for _, tc := range []struct {
		name, path, accept, body, kind, cache, encoding string
		status                                          int
	}{
		{"page", "/", "br", "page in brotli", "text/html; charset=utf-8", "no-cache", "br", 200},
		{"page for every address", "/@ada/dev/builds/3", "gzip, deflate, br;q=1.0", "page in brotli", "text/html; charset=utf-8", "no-cache", "br", 200},
		{"page as it is", "/workspaces", "", "the page", "text/html; charset=utf-8", "no-cache", "", 200},
		{"brotli refused", "/", "br;q=0, identity", "the page", "text/html; charset=utf-8", "no-cache", "", 200},
		{"file", "/theme.js", "br", "theme in brotli", "text/javascript; charset=utf-8", "no-cache", "br", 200},
		{"named by content", "/assets/a-123.css", "br", "css in brotli", "text/css; charset=utf-8", "public, max-age=31536000, immutable", "br", 200},
		{"picture", "/assets/p-123.webp", "gzip, br", "a picture", "image/webp", "public, max-age=31536000, immutable", "", 200},
		{"of an older build", "/assets/b-1.js", "br", "404 page not found\n", "text/plain; charset=utf-8", "", "", 404},
		{"no such picture", "/icon/none.svg", "br", "404 page not found\n", "text/plain; charset=utf-8", "", "", 404},
		{"outside", "/assets/../../site.go", "br", "page in brotli", "text/html; charset=utf-8", "no-cache", "br", 404},
		{"no such page", "/oauth2/authorize", "br", "page in brotli", "text/html; charset=utf-8", "no-cache", "br", 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := get(h, http.MethodGet, tc.path, "Accept-Encoding", tc.accept, "Accept", "text/html,*/*;q=0.8")
			got := []any{w.Code, w.Body.String(), w.Header().Get("Content-Type"), w.Header().Get("Cache-Control"), w.Header().Get("Content-Encoding")}
			want := []any{tc.status, tc.body, tc.kind, tc.cache, tc.encoding}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("GET %s: got %q, want %q", tc.path, got[i], want[i])
				}
			}
			if w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("GET %s: browsers may guess what it is", tc.path)
			}
		})
	}
	if w := get(h, http.MethodGet, "/", "Accept-Encoding", "gzip"); w.Header().Get("Content-Encoding") != "gzip" {
		t.Errorf("gzip: got %q", w.Header().Get("Content-Encoding"))
	}
	if w := get(h, http.MethodPost, "/"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: got %d", w.Code)
	}
	if w := get(h, http.MethodHead, "/", "Accept-Encoding", "br"); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "14" {
		t.Errorf("HEAD: got %d, %d bytes, length %s", w.Code, w.Body.Len(), w.Header().Get("Content-Length"))
	}
}

// TestBadge checks that pages of other sites may show the badge, and no other file.
func TestBadge(t *testing.T) {
	t.Parallel()
	h := handler(t)
	for path, want := range map[string]string{"/open-in-coder.svg": "cross-origin", "/theme.js": "", "/assets/p-123.webp": "", "/": ""} {
		w := get(h, http.MethodGet, path)
		if got := w.Header().Get("Cross-Origin-Resource-Policy"); w.Code != http.StatusOK || got != want {
			t.Errorf("GET %s: got %d, %q, want %q", path, w.Code, got, want)
		}
	}
}

func TestRevalidation(t *testing.T) {
	t.Parallel()
	h := handler(t)
	first := get(h, http.MethodGet, "/", "Accept-Encoding", "br")
	etag := first.Header().Get("ETag")
	if w := get(h, http.MethodGet, "/workspaces", "Accept-Encoding", "br", "If-None-Match", etag); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("unchanged: got %d with %d bytes", w.Code, w.Body.Len())
	}
	if w := get(h, http.MethodGet, "/", "Accept-Encoding", "gzip", "If-None-Match", etag); w.Code != http.StatusOK {
		t.Errorf("another encoding of it: got %d, want 200", w.Code)
	}
}

func TestNotBuilt(t *testing.T) {
	t.Parallel()
	h, err := site.NewFrom(fstest.MapFS{".gitkeep": {}})
	if err != nil || h.Built() {
		t.Fatalf("built: %t, %v", h.Built(), err)
	}
	w := get(h, http.MethodGet, "/workspaces")
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "make build") {
		t.Errorf("got %d: %s", w.Code, w.Body)
	}
}

func TestDamaged(t *testing.T) {
	t.Parallel()
	if _, err := site.NewFrom(fstest.MapFS{"index.html.gz": packed(t, "x")}); err == nil {
		t.Error("a file without its brotli form was accepted")
	}
}

// TestUnknownPaths: programs that look for what other servers have get a 404. They would take a page for the answer: for metrics, for a
// script to run, for a server that signs users in.
func TestUnknownPaths(t *testing.T) {
	t.Parallel()
	h := handler(t)
	for _, p := range []string{
		"/metrics", "/install.sh", "/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource", "/oauth2/token",
		"/scim/v2/Users", "/latency-check", "/swagger/index.html", "/templates/a/b/c", "/@ada", "/@/dev", "/wp-login.php", "/a\x00b",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = p
		r.Header.Set("Accept", "*/*")
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead} {
			r.Method = method
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusNotFound || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
				t.Errorf("%s %s: got %d %s", method, p, w.Code, w.Header().Get("Content-Type"))
			}
			if method == http.MethodGet && !strings.Contains(w.Body.String(), `does not exist on this server."}`) {
				t.Errorf("%s: got %s", p, w.Body)
			}
		}
		// A browser gets the dashboard's page, which reports the error.
		r.Method = http.MethodGet
		r.Header.Set("Accept", "text/html,application/xhtml+xml")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound || w.Body.String() != "the page" || w.Header().Get("ETag") != "" {
			t.Errorf("%s in a browser: got %d %q, ETag %q", p, w.Code, w.Body, w.Header().Get("ETag"))
		}
	}
	// Pages are served to every client: monitors request them without naming a type.
	for _, p := range []string{"/", "/login", "/@ada/dev", "/@ada/dev/", "/@ada/dev.main/terminal", "/templates/x/files", "/external-auth/github", "/cli-auth", "/organizations/a/groups/b%2Fc"} {
		if w := get(h, http.MethodGet, p); w.Code != http.StatusOK {
			t.Errorf("%s: got %d", p, w.Code)
		}
	}
	if w := get(h, http.MethodDelete, "/workspaces"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("DELETE of a page: got %d", w.Code)
	}
}

// TestRoutesAreTheDashboards: the server's list of pages is the dashboard's.
func TestRoutesAreTheDashboards(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("src/app.tsx")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range regexp.MustCompile(`<Route path=(?:"([^"]*)"|\{/\^?(.*?)\$?/\})`).FindAllStringSubmatch(string(source), -1) {
		found++
		route := m[1]
		if route == "" { // a regular expression: its groups are names, its optional parts are omitted or included
			route = strings.NewReplacer(`\/?`, "", `\/`, "/", `(?<owner>[^/]+)`, ":owner", `(?<name>[^/.]+)`, ":name", `(?:\.(?<agent>[^/]+))?`, "").Replace(m[2])
		}
		route = strings.ReplaceAll(route, `(?:/builds/(?<build>\d+))?`, "/:build?")
		for _, p := range []string{sample(route, false), sample(route, true)} {
			p = strings.Replace(p, "/@x/x/build", "/@x/x/builds/build", 1)
			if !site.IsPage(p) {
				t.Errorf("the dashboard has a page at %s (%s), and the server does not know it: see routes.go", p, route)
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d routes found in app.tsx: does the expression still fit?", found)
	}
	for _, gone := range []string{"/nonsense", "/templates/a/versions/b/c", "/users/ada"} {
		if site.IsPage(gone) {
			t.Errorf("%s is a page", gone)
		}
	}
}

// sample returns a path of a route, with or without its optional segments.
func sample(route string, whole bool) string {
	var out []string
	for segment := range strings.SplitSeq(route, "/") {
		name, optional := strings.CutSuffix(segment, "?")
		prefix, value, variable := strings.Cut(name, ":")
		switch {
		case optional && !whole:
			continue
		case variable && value == "build":
			out = append(out, "build")
		case variable:
			out = append(out, prefix+"x")
		default:
			out = append(out, name)
		}
	}
	return strings.Join(out, "/")
}

// TestTerminalStyles: xterm.js writes style elements and attributes, so the terminal's page allows them. No other page does.
func TestTerminalStyles(t *testing.T) {
	t.Parallel()
	const policy = "default-src 'self'; style-src 'self'; frame-ancestors 'none'"
	const relaxed = "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
	h := handler(t)
	confined := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		h.ServeHTTP(w, r)
	})
	for path, want := range map[string]string{
		"/@ada/dev/terminal":          relaxed,
		"/@ada/dev.main/terminal/":    relaxed,
		"/@ada/dev.main":              policy,
		"/@ada/dev/builds/3":          policy,
		"/@ada/dev/terminal/extra":    policy,
		"/@ada/terminal":              policy,
		"/@a/../@ada/login/../x":      policy,
		"/@ada/dev/terminal/../../..": policy,
		"/login":                      policy,
		"/theme.js":                   policy,
		"/no/such/terminal":           policy,
	} {
		if got := get(confined, http.MethodGet, path, "Accept", "text/html").Header().Values("Content-Security-Policy"); len(got) != 1 || got[0] != want {
			t.Errorf("%s: policy %q, want %q", path, got, want)
		}
	}
	if got := get(h, http.MethodGet, "/@ada/dev/terminal").Header().Get("Content-Security-Policy"); got != "" {
		t.Errorf("without a policy: got %q", got)
	}
}
