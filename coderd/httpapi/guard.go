package httpapi

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// TB is the part of a test that CheckPermissions needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// CheckPermissions is the guard test over a mux: the public routes are exactly the named patterns, and every other one
// refuses a request without a token.
func CheckPermissions(t TB, m *Mux, public ...string) {
	t.Helper()
	known := map[string]bool{}
	for _, route := range m.Routes() {
		known[route.Pattern] = true
		listed := slices.Contains(public, route.Pattern)
		if listed != route.Permission.IsPublic() {
			t.Errorf("route %s: permission is %q, listed as public: %t", route.Pattern, route.Permission, listed)
		}
		if listed {
			continue
		}
		method, path, ok := strings.Cut(route.Pattern, " ")
		if !ok {
			method, path = http.MethodGet, route.Pattern
		}
		r, err := http.NewRequest(method, wildcard.ReplaceAllString(strings.ReplaceAll(path, "{$}", ""), "x"), nil)
		if err != nil {
			t.Errorf("route %s: %v", route.Pattern, err)
			continue
		}
		w := &statusOnly{header: http.Header{}}
		m.ServeHTTP(w, r)
		if w.status != http.StatusUnauthorized {
			t.Errorf("route %s without a token: got %d, want %d", route.Pattern, w.status, http.StatusUnauthorized)
		}
	}
	for _, pattern := range public {
		if !known[pattern] {
			t.Errorf("route %s is listed as public and not registered", pattern)
		}
	}
}

// statusOnly is a ResponseWriter that keeps the status: net/http/httptest would add its flag to the program.
type statusOnly struct {
	header http.Header
	status int
}

func (w *statusOnly) Header() http.Header         { return w.header }
func (w *statusOnly) Write(p []byte) (int, error) { return len(p), nil }
func (w *statusOnly) WriteHeader(status int)      { w.status = status }
