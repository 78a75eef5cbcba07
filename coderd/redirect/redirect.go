// Package redirect binds a redirect to another site's sign-in page, and back, to the browser that began it. The state
// in the URL is signed by this deployment and names what was begun; the PKCE verifier stays in a cookie of the browser,
// and the state holds its hash. A code that another browser obtained is therefore worthless here, and so is a state
// without its cookie. The package knows neither users nor providers.
package redirect

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Lifetime is how long a user may take at the other site.
const Lifetime = 15 * time.Minute

// maxBack bounds the address to return to, in bytes.
const maxBack = 1024

// Flow is one kind of redirect. Safe for concurrent use.
type Flow struct {
	Signer  *signed.Signer
	Purpose string // of the signed state
	Cookie  string // name
	Path    string // of the cookie
	Secure  bool   // the server is reached over HTTPS
}

// Begin sets the browser's cookie and returns the state for the URL and the PKCE verifier. Content returns what the
// state contains; it must include the hash of the verifier.
func (f Flow) Begin(
	w http.ResponseWriter, content func(verifierHash string) any,
) (state secret.Token, verifier string, err error) {
	verifier = oauth2.GenerateVerifier()
	state, err = f.Signer.Sign(f.Purpose, content(Hash(verifier)), Lifetime)
	if err != nil {
		return "", "", err
	}
	http.SetCookie(w, f.cookie(verifier, int(Lifetime/time.Second)))
	return state, verifier, nil
}

// Finish removes the browser's cookie, and is Check otherwise.
func (f Flow) Finish(
	w http.ResponseWriter, r *http.Request, content any, hash func() string,
) (verifier string, ok bool) {
	f.End(w)
	return f.Check(r, content, hash)
}

// End removes the browser's cookie.
func (f Flow) End(w http.ResponseWriter) { http.SetCookie(w, f.cookie("", -1)) }

// Check decodes the state of the request into content, and reports whether this browser began the redirect; hash
// returns the verifier's hash in the decoded content.
func (f Flow) Check(r *http.Request, content any, hash func() string) (verifier string, ok bool) {
	c, err := r.Cookie(f.Cookie)
	if err != nil || c.Value == "" ||
		f.Signer.Verify(f.Purpose, secret.Token(r.URL.Query().Get("state")), content) != nil {
		return "", false
	}
	return c.Value, subtle.ConstantTimeCompare([]byte(hash()), []byte(Hash(c.Value))) == 1
}

func (f Flow) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: f.Cookie, Value: value, Path: f.Path, MaxAge: age, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: f.Secure,
	}
}

// Returns reports whether a request to a callback comes back from the provider, rather than begins.
func Returns(r *http.Request) bool {
	q := r.URL.Query()
	return q.Has("code") || q.Has("error") || q.Has("state")
}

// Crafted reports whether a page of another site, or of an app on a neighbouring host, sent the browser to a callback.
// Such a page must not begin a sign-in that the provider answers without asking.
func Crafted(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// IsLocal reports whether text is a path of this server, with or without a query. The caller appends it to the access
// URL's origin.
func IsLocal(text string) bool {
	u, err := url.Parse(text)
	return err == nil && len(text) <= maxBack && strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") &&
		!strings.ContainsAny(text, "\\\r\n\t") &&
		u.Scheme == "" && u.Host == "" && u.User == nil
}

// Hash returns the hash under which a state names a verifier.
func Hash(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return hex.EncodeToString(sum[:])
}
