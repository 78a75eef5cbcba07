package coderd_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
)

var pathPart = regexp.MustCompile(`\{[^}]*\}`)

// usual is what stands in the place of a route's other parts while one is attacked: what exists, where it can be known.
func usual(part string) string {
	switch part {
	case "{user}":
		return "me"
	case "{organization}":
		return "default"
	}
	return uuid.NewString()
}

// as asks as the owner, for at most a while: routes that stream have nothing to stream here.
func as(s *coderdtest.Server, token, method, target, body string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r := httptest.NewRequest(method, "/", strings.NewReader(body)).WithContext(ctx)
	u, err := r.URL.Parse(target)
	if err != nil {
		return http.StatusBadRequest // so says the server's own parser
	}
	r.URL, r.RequestURI = u, target
	r.Header.Set("Coder-Session-Token", token)
	w := httptest.NewRecorder()
	s.Mux.ServeHTTP(w, r)
	return w.Code
}

// No part of a path, query or body makes a route fail: what cannot exist is not found or refused.
func TestHostileInput(t *testing.T) {
	s := coderdtest.New(t)
	token := s.Token("olga")
	hostile := []string{"%00", "a%00b", "%ff", "%c0%80", "%ed%a0%80", "%27%3B--", "..%2f..%2fetc", "%25", "-1", strings.Repeat("9", 40), strings.Repeat("x", 3000), "%F0%9F%92%A9"}
	attacked := 0
	for _, route := range s.Mux.Routes() {
		method, path, ok := strings.Cut(route.Pattern, " ")
		if !ok || !strings.HasPrefix(path, "/api/") || strings.HasSuffix(path, "logout") {
			continue
		}
		path = strings.ReplaceAll(path, "{$}", "")
		parts := pathPart.FindAllString(path, -1)
		ask := func(target, body string) {
			attacked++
			if got := as(s, token, method, target, body); got >= 500 {
				t.Errorf("%s %s with %.40q: %d", method, target, body, got)
			}
		}
		for i := range parts {
			for _, bad := range hostile {
				n := -1
				ask(pathPart.ReplaceAllStringFunc(path, func(part string) string {
					if n++; n == i {
						return bad
					}
					return usual(part)
				}), "{}")
			}
		}
		if slices.Contains([]string{"/api/v2/events", "/api/v2/debug/ws", "/api/v2/debug/health"}, path) {
			continue // these answer for as long as they are asked
		}
		target := pathPart.ReplaceAllStringFunc(path, usual)
		for _, query := range []string{"q=%00", "q=%ff&limit=%00", "q=name:%22%27", "limit=99999999999999999999", "offset=-1", "after=x", "ids=%00", "tags=%7B%22a%5Cu0000%22%3A%22%22%7D", "initiator=%27", "include_deleted=%00"} {
			if method == "GET" {
				ask(target+"?"+query, "")
			}
		}
		if method != "GET" && method != "DELETE" {
			for _, body := range []string{"", "null", "[]", `"x"`, `{"name":"\u0000","username":"\u0000","email":"\u0000","password":"\u0000"}`, "{\"name\":\"\xff\"}", strings.Repeat("[", 20_000)} {
				ask(target, body)
			}
		}
	}
	if attacked < 1000 {
		t.Errorf("only %d requests", attacked)
	}
	if got := as(s, token, "GET", "/api/v2/users/me", ""); got != 200 {
		t.Errorf("the owner afterwards: %d", got)
	}
}

// No route lets a page of another site write, or open a websocket: a public one not with any token in its address, the others not
// with the visitor's cookie.
func TestNoRouteServesOtherSites(t *testing.T) {
	s := coderdtest.New(t)
	token := s.Token("olga")
	for _, route := range s.Mux.Routes() {
		method, path, ok := strings.Cut(route.Pattern, " ")
		if !ok {
			method, path = "GET", route.Pattern
		}
		path = pathPart.ReplaceAllStringFunc(strings.ReplaceAll(path, "{$}", ""), usual)
		r := httptest.NewRequest(method, s.URL.String()+path, nil)
		r.Header.Set("Origin", "https://evil.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		if method == "GET" {
			r.Header.Set("Upgrade", "websocket")
		}
		if route.Permission.IsPublic() {
			r.URL.RawQuery = "coder_session_token=" + token
		} else {
			r.AddCookie(&http.Cookie{Name: "coder_session_token", Value: token})
		}
		w := httptest.NewRecorder()
		s.Mux.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s for another site's page: %d %s", route.Pattern, w.Code, w.Body)
		}
	}
}

// FuzzRequests: no request at all makes the API fail.
func FuzzRequests(f *testing.F) {
	f.Add(0, "%00", "q=x", `{"name":"x"}`)
	f.Add(20, "me", "limit=1&offset=%ff", `{"name":"\u0000"}`)
	f.Add(50, "..", "tags={}", `{"template_id":"00000000-0000-0000-0000-000000000000"}`)
	f.Add(80, "a/b", "status=a,b", `[[[[`)
	s := coderdtest.New(f)
	token := s.Token("olga")
	routes := s.Mux.Routes()
	f.Fuzz(func(t *testing.T, n int, part, query, body string) {
		route := routes[(n%len(routes)+len(routes))%len(routes)]
		method, path, ok := strings.Cut(route.Pattern, " ")
		if !ok || !strings.HasPrefix(path, "/api/") || strings.Contains(path, "/debug/") || slices.Contains([]string{"/api/v2/events", "/api/v2/users/logout"}, path) ||
			method == "DELETE" && strings.Contains(path, "/keys/") || strings.HasSuffix(path, "/expire") || strings.HasSuffix(path, "/password") {
			t.Skip() // it would end the session, or stream forever
		}
		n2 := 0
		target := pathPart.ReplaceAllStringFunc(strings.ReplaceAll(path, "{$}", ""), func(name string) string {
			if n2++; n2 == 1 && name == "{organization}" {
				return usual(name)
			}
			return part
		})
		if got := as(s, token, method, target+"?"+query, body); got >= 500 {
			t.Errorf("%s %q with %q: %d", method, target+"?"+query, body, got)
		}
	})
}

// What other servers have is not answered with a page, and metrics have an address of their own.
func TestUnknownPaths(t *testing.T) {
	s := coderdtest.New(t)
	for _, path := range []string{"/metrics", "/install.rpm", "/.well-known/oauth-authorization-server", "/oauth2/token", "/latency-check/"} {
		r := httptest.NewRequest("GET", s.URL.String()+path, nil)
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, r)
		if w.Code != 404 || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
	}
}

// Programs of another mesh are told which one they need.
func TestForeignRoutes(t *testing.T) {
	s := coderdtest.New(t)
	token := s.Token("olga")
	for _, path := range []string{
		"workspaceagents/" + uuid.NewString() + "/coordinate?version=2.0", "workspaceagents/connection", "derp-map", "tailnet?version=2.0",
	} {
		r := httptest.NewRequest("GET", "/api/v2/"+path, nil)
		r.Header.Set("Coder-Session-Token", token)
		w := httptest.NewRecorder()
		s.Mux.ServeHTTP(w, r)
		if w.Code != 404 || !strings.Contains(w.Body.String(), "own CLI") || !strings.Contains(w.Body.String(), s.URL.String()+"/bin/coder-<os>-<arch>") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
