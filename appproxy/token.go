package appproxy

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	// AuthPath is where the dashboard gives the browsers of signed-in users a code for an app.
	AuthPath = "/api/v2/applications/auth-redirect"

	// The session cookie has the dashboard's name. Browsers never send it to an app's host, and the proxy never
	// forwards it to an app.
	sessionCookie = "coder_session_token"
	sessionHeader = "Coder-Session-Token"
	// tokenCookie and stateCookie belong to an app's host. On HTTPS they have the prefix that makes browsers refuse to
	// let other hosts set them.
	tokenCookie = "coder_app_token"
	stateCookie = "coder_app_state"
	hostPrefix  = "__Host-"
	codeParam   = "coder_app_code"

	stateLifetime = 10 * time.Minute
	// TokenLifetime is how long a host's token is valid. It is renewed while its host is in use, and ends with the
	// session that it was issued for, whatever its lifetime.
	TokenLifetime = time.Hour
)

// StateLength is the length of a state's hash.
const StateLength = 43

func (h *Handler) cookieName(name string) string {
	if h.secure {
		return hostPrefix + name
	}
	return name
}

func (h *Handler) setCookie(w http.ResponseWriter, name, value string, lifetime time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: h.cookieName(name), Value: value, Path: "/", MaxAge: int(lifetime / time.Second), HttpOnly: true,
		Secure:   h.secure,
		SameSite: http.SameSiteLaxMode,
	})
}

func hash(state string) string {
	sum := sha256.Sum256([]byte(state))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// signIn sends a browser to the dashboard for a token of the host at origin. The code that it brings back works only in
// this browser.
func (h *Handler) signIn(w http.ResponseWriter, r *http.Request, origin string) {
	state := secret.Text(22)
	h.setCookie(w, stateCookie, state, stateLifetime)
	u := *h.opts.Dashboard
	u.Path = AuthPath
	u.RawQuery = url.Values{"redirect_uri": {origin + cleanURI(r.URL)}, "state": {hash(state)}}.Encode()
	redirect(w, r, u.String())
}

// cleanURI returns a request's path and query without this server's own parameters. It begins with exactly one slash.
func cleanURI(u *url.URL) string {
	clean := url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: withoutParams(u.RawQuery)}
	return "/" + strings.TrimLeft(clean.RequestURI(), "/")
}

// withoutParams removes this server's own parameters from a query, and leaves the rest unchanged.
func withoutParams(query string) string {
	if !strings.Contains(query, codeParam) && !strings.Contains(query, sessionCookie) {
		return query
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err != nil || plain != codeParam && plain != sessionCookie {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

// WithCode returns the address at which an app's browser redeems a code.
func WithCode(back *url.URL, code secret.Token) string {
	to := *back
	if to.RawQuery = withoutParams(back.RawQuery); to.RawQuery != "" {
		to.RawQuery += "&"
	}
	to.RawQuery += codeParam + "=" + code.Reveal()
	return to.String()
}

func redirect(w http.ResponseWriter, r *http.Request, to string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer") // addresses contain codes
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// carriesCode reports whether a browser brings a code from the dashboard.
func carriesCode(r *http.Request) bool {
	return strings.Contains(r.URL.RawQuery, codeParam) && r.URL.Query().Has(codeParam) && isNavigation(r)
}

// redeem exchanges a request's code for a token, if this browser asked for it. It returns "" for a code that is stale.
func (h *Handler) redeem(w http.ResponseWriter, r *http.Request, x Exchange) (secret.Token, error) {
	state := r.CookiesNamed(h.cookieName(stateCookie))
	if len(state) == 0 {
		return "", nil
	}
	x.Code, x.State = secret.Token(r.URL.Query().Get(codeParam)), hash(state[0].Value)
	token, err := h.opts.Judge.Redeem(r.Context(), x)
	if err == nil && token != "" {
		h.setCookie(w, stateCookie, "", -time.Second)
	}
	return token, err
}

// hostProof returns what a request for an app's host shows: a session's token in a header, or the host's cookie.
func (h *Handler) hostProof(r *http.Request) Proof {
	if token := r.Header.Get(sessionHeader); token != "" && !h.away() {
		return Proof{BySession, secret.Token(token)}
	}
	cookies := r.CookiesNamed(h.cookieName(tokenCookie))
	if len(cookies) != 1 { // another host's page planted the second one
		return Proof{}
	}
	return Proof{ByHost, secret.Token(cookies[0].Value)}
}
