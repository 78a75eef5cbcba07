package coderd_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
)

// TestDocsOfCoder follows links that Coder's command line makes of docs_url.
func TestDocsOfCoder(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	shown, err := s.As("ann").Appearance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := s.URL.JoinPath("docs").String(); shown.DocsURL != want {
		t.Errorf("docs_url is %q, want %q", shown.DocsURL, want)
	}
	for path, want := range map[string]string{
		"/docs/templates/resource-persistence":                "/docs/provisioners",
		"/docs/admin/monitoring/health-check":                 "/docs/troubleshooting",
		"/docs/admin/templates/extending-templates/modules":   "/docs/templates-reference",
		"/docs/user-guides/workspace-access/":                 "/docs/connecting",
		"/docs/no/such/page":                                  "/docs",
		"/docs/decisions/0001-stock-tailscale-engine":         "",
		"/docs/install":                                       "",
		"/docs/screenshots/list.webp":                         "",
		"/docs//evil.example.com/x":                           "/docs/evil.example.com/x",
		"/docs/https:/evil.example.com/templates":             "/docs",
		"/docs/templates/%2e%2e/%2e%2e/evil.example.com/page": "/docs",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Accept", "text/html")
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, r)
		if got := w.Header().Get("Location"); got != want {
			t.Errorf("%s leads to %q (%d), want %q", path, got, w.Code, want)
		}
	}
}
