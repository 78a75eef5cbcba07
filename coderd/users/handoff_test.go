package users_test

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// TestLoginCode: a browser's session becomes a program's, for who has the secret of the program only.
func TestLoginCode(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	admin := a.first()
	alice := admin.add("alice")
	const verifier = "a secret of the program, of 43 characters or more"
	code := func(p person) string {
		return call[sdk.CreateLoginCodeResponse](p, 200, "POST", "users/me/keys/codes", sdk.CreateLoginCodeRequest{CodeChallenge: challengeOf(verifier)}).Code
	}
	try := func(status int, code, verifier string) []byte {
		t.Helper()
		return a.nobody().want(status, "POST", "users/login/code", sdk.LoginWithCodeRequest{Code: code, CodeVerifier: verifier})
	}

	given := code(alice)
	session := call[sdk.LoginResponse](a.nobody(), 201, "POST", "users/login/code", sdk.LoginWithCodeRequest{Code: given, CodeVerifier: verifier})
	program := person{a, "alice's program", alice.id, session.SessionToken}
	if me := call[sdk.User](program, 200, "GET", "users/me", nil); me.Username != "alice" {
		t.Errorf("the program acts as %s", me.Username)
	}

	// A thief of the code has no secret; nothing else is a code.
	try(401, given, "another secret of a program, of enough characters")
	try(401, given, "")
	try(401, given, challengeOf(verifier))
	try(401, given+"x", verifier)
	try(401, "", verifier)
	try(401, session.SessionToken, verifier)
	for _, challenge := range []string{"", "short", verifier, strings.Repeat("A", 44), challengeOf(verifier) + "="} {
		alice.want(400, "POST", "users/me/keys/codes", sdk.CreateLoginCodeRequest{CodeChallenge: challenge})
	}

	// Callers hand over what they have: neither another's session, nor a session in place of a token of less.
	a.nobody().want(401, "POST", "users/me/keys/codes", sdk.CreateLoginCodeRequest{CodeChallenge: challengeOf(verifier)})
	admin.want(403, "POST", "users/alice/keys/codes", sdk.CreateLoginCodeRequest{CodeChallenge: challengeOf(verifier)})
	limited := call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{Scopes: []string{"api_key:create", "user:read"}})
	person{a, "a limited token", alice.id, limited.Key}.want(403, "POST", "users/me/keys/codes", sdk.CreateLoginCodeRequest{CodeChallenge: challengeOf(verifier)})

	// A code ends with the session that made it, and with its user's account.
	other := person{a, "alice elsewhere", alice.id, a.login("alice@example.com")}
	orphan := code(other)
	other.want(200, "POST", "users/logout", nil)
	try(401, orphan, verifier)
	kept := code(alice)
	admin.want(200, "PUT", "users/alice/status/suspend", nil)
	try(401, kept, verifier)
}
