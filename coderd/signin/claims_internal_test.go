package signin

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzClaims: no claims of a provider make the server panic, and what is kept is JSON that the database can hold.
func FuzzClaims(f *testing.F) {
	f.Add(`{"email":"a@b.example","email_verified":"true","x":[1,{"y":null}]}`)
	f.Add(`{"email":5,"email_verified":1e400}`)
	f.Add(`{"a\u0000":"\u0000","b":"\\u0000"}`)
	f.Fuzz(func(t *testing.T, text string) {
		claims := map[string]any{}
		if json.Unmarshal([]byte(text), &claims) != nil {
			return
		}
		_, _ = verifiedClaim(claims)
		for name := range claims {
			if got, err := textClaim(claims, name); err == nil && (strings.ContainsRune(got, 0) || len(got) > maxText) {
				t.Errorf("claim %q: %q", name, got)
			}
		}
		kept, err := keptClaims(claims)
		if err != nil || !json.Valid(kept) || len(kept) > maxClaims || strings.Contains(string(kept), `\u0000`) {
			t.Errorf("kept %d bytes, %v", len(kept), err)
		}
	})
}

// FuzzUnverified: no token makes the server panic while it says what is wrong with it.
func FuzzUnverified(f *testing.F) {
	f.Add("a.e30.b")
	f.Add("a.b")
	f.Fuzz(func(_ *testing.T, raw string) {
		var claims map[string]any
		_ = unverified(raw, &claims)
	})
}

// TestVerifiedClaim checks the forms in which providers send email_verified.
func TestVerifiedClaim(t *testing.T) {
	t.Parallel()
	for value, want := range map[any]verification{
		nil: unsaid, true: verifiedEmail, false: unverifiedEmail, "true": verifiedEmail, "false": unverifiedEmail, "True": verifiedEmail, "False": unverifiedEmail,
	} {
		if got, err := verifiedClaim(map[string]any{"email_verified": value}); got != want || err != nil {
			t.Errorf("%#v: got %v, %v, want %v", value, got, err, want)
		}
	}
	for _, value := range []any{"yes", "", 1.0, []any{true}} {
		if got, err := verifiedClaim(map[string]any{"email_verified": value}); err == nil {
			t.Errorf("%#v: got %v, want an error", value, got)
		}
	}
}
