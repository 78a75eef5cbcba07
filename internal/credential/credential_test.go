package credential_test

import (
	"net/http/httptest"
	"testing"

	"github.com/codermesh/codermesh/internal/credential"
	"github.com/codermesh/codermesh/internal/secret"
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
