package credential_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/credential"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// TestPlantedCookie checks that a page of a neighbouring host, which can plant a cookie of the same name, cannot sign a user
// in to another account.
func TestPlantedCookie(t *testing.T) {
	t.Parallel()
	for cookies, want := range map[string]secret.Token{
		"coder_session_token=a":                                      "a",
		"coder_session_token=a; coder_session_token=a":               "a",
		"coder_session_token=b; coder_session_token=a":               "",
		"coder_session_token=a; coder_session_token=":                "",
		"__Host-coder_session_token=a; coder_session_token=b":        "a",
		"coder_session_token=b; __Host-coder_session_token=a":        "a",
		"__Host-coder_session_token=a; __Host-coder_session_token=b": "",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", cookies)
		if got, fromCookie := credential.Of(r); got != want || fromCookie != (want != "") {
			t.Errorf("%s: token %q, from a cookie %t; want %q", cookies, got.Reveal(), fromCookie, want.Reveal())
		}
	}
}

// TestPlaces checks that exactly one place of a request is read, and which tokens are a browser's.
func TestPlaces(t *testing.T) {
	t.Parallel()
	const token = "0123456789-0123456789abcdefghijkl"
	for name, c := range map[string]struct {
		query                 string
		header, cookie, proxy string // proxy is the Authorization header
		want                  secret.Token
		fromCookie            bool
	}{
		"header before all":  {query: "q", header: "h", cookie: "c", proxy: "Bearer " + token, want: "h"},
		"query before those": {query: "q", cookie: "c", proxy: "Bearer " + token, want: "q"},
		"cookie before":      {cookie: "c", proxy: "Bearer " + token, want: "c", fromCookie: true},
		"bearer":             {proxy: "Bearer " + token, want: token},
		"bearer, lower case": {proxy: "bearer " + token, want: token},
		"nothing":            {},
	} {
		r := httptest.NewRequest("GET", "/?coder_session_token="+c.query, nil)
		for key, value := range map[string]string{"Coder-Session-Token": c.header, "Authorization": c.proxy} {
			if value != "" {
				r.Header.Set(key, value)
			}
		}
		if c.cookie != "" {
			r.AddCookie(&http.Cookie{Name: "coder_session_token", Value: c.cookie})
		}
		if got, fromCookie := credential.Of(r); got != c.want || fromCookie != c.fromCookie {
			t.Errorf("%s: token %q, from a cookie %t; want %q, %t", name, got.Reveal(), fromCookie, c.want.Reveal(), c.fromCookie)
		}
	}
}

// TestBearer checks that a proxy's own credentials are not taken for a session.
func TestBearer(t *testing.T) {
	t.Parallel()
	const token = "0123456789-0123456789abcdefghijkl"
	for text, want := range map[string]secret.Token{
		"Bearer " + token: token, "Digest " + token: "", "": "", "Bear": "", "Bearer": "", "Bearer ": "", token: "", "Basic dXNlcjpwYXNz": "",
		"Bearer " + token + "x": "", "Bearer x" + token: "", "Bearer eyJhbGciOi.eyJzdWIi.c2ln": "", "Bearer  " + token: "",
	} {
		if got := credential.Bearer(http.Header{"Authorization": {text}}); got != want {
			t.Errorf("%q: token %q, want %q", text, got.Reveal(), want.Reveal())
		}
	}
}
