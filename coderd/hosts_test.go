package coderd_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestRebinding: a page whose name leads to the server's address, so that browsers take both for one site, reaches no route. Who opens
// the server by its own names does.
func TestRebinding(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t, func(o *coderd.Options) {
		o.TrustedHosts = []string{"coder.internal"}
		o.WildcardHost = "*.apps.example.com"
	})
	send := func(host, method, path string, header http.Header, body []byte) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, bytes.NewReader(body))
		r.Host = host
		for name, values := range header {
			r.Header[name] = values
		}
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, r)
		return w
	}
	evil := "evil.example:" + s.URL.Port()
	page := http.Header{"Origin": {"http://" + evil}, "Sec-Fetch-Site": {"same-origin"}, "Content-Type": {"application/json"}}

	// Even with the setup code a page does not become the owner.
	first, err := json.Marshal(sdk.CreateFirstUserRequest{Email: "evil@x.com", Username: "evil", Password: "Passw0rd-evil!", SetupCode: coderdtest.SetupCode.Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	if w := send(evil, "POST", "/api/v2/users/first", page, first); w.Code != http.StatusMisdirectedRequest {
		t.Errorf("a page makes the first user: %d %s", w.Code, w.Body)
	}

	placeholder := regexp.MustCompile(`\{[^}]*\}`)
	paths := map[string]bool{"GET /": true, "GET /derp": true, "GET /healthz": true, "GET /.well-known/acme-challenge/x": true, "GET /@ann/dev/apps/web/": true, "GET /assets/x.js": true}
	for _, route := range s.Mux.Routes() {
		method, path, ok := strings.Cut(route.Pattern, " ")
		if !ok {
			method, path = "GET", route.Pattern
		}
		paths[method+" "+placeholder.ReplaceAllString(strings.TrimSuffix(path, "{$}"), "x")] = true
	}
	if len(paths) < 200 {
		t.Fatalf("only %d routes", len(paths))
	}
	upgrade := http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"MDEyMzQ1Njc4OWFiY2RlZg=="}, "Origin": {"http://" + evil}}
	for each := range paths {
		method, path, _ := strings.Cut(each, " ")
		for _, header := range []http.Header{nil, page, upgrade} {
			if w := send(evil, method, path, header, nil); w.Code != http.StatusMisdirectedRequest || strings.Contains(w.Body.String(), "evil.example:") || w.Header().Get("Set-Cookie") != "" {
				t.Errorf("%s of %s: got %d %s, want 421", each, evil, w.Code, w.Body)
			}
		}
	}
	for _, host := range []string{s.URL.Host, "localhost:" + s.URL.Port(), "10.0.0.7", "coder.internal", "x.apps.example.com", ""} {
		if w := send(host, "GET", "/healthz", nil, nil); w.Code == http.StatusMisdirectedRequest {
			t.Errorf("host %q: got %d %s", host, w.Code, w.Body)
		}
	}
	if w := send(s.URL.Host, "POST", "/api/v2/users/first", nil, first); w.Code != http.StatusCreated {
		t.Errorf("the operator makes the first user: %d %s", w.Code, w.Body)
	}
}
