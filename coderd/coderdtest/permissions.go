package coderdtest

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
)

// TB is the part of a test that CheckPermissions needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// CheckPermissions fails unless the public routes of a mux are exactly the named patterns, and every other one refuses
// a request without a token.
func CheckPermissions(t TB, m *httpapi.Mux, public ...string) {
	t.Helper()
	registered := map[string]bool{}
	for _, route := range m.Routes() {
		registered[route.Pattern] = true
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
		r := httptest.NewRequest(method, wildcard.ReplaceAllString(strings.ReplaceAll(path, "{$}", ""), "x"), nil)
		w := httptest.NewRecorder()
		m.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized {
			t.Errorf("route %s without a token: got %d, want %d", route.Pattern, w.Code, http.StatusUnauthorized)
		}
	}
	for _, pattern := range public {
		if !registered[pattern] {
			t.Errorf("route %s is listed as public and not registered", pattern)
		}
	}
}
