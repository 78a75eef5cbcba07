// Package credential finds session tokens in requests. It knows the places and not the sessions: whether a token is
// valid is for the server to say, and a region proxy must only take care that no app sees one.
package credential

import (
	"net/http"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	tokenName  = "coder_session_token"
	hostPrefix = "__Host-"
	scheme     = "Bearer "
)

// tokenForm matches a session token.
var tokenForm = lazyregexp.New(`^[A-Za-z0-9]{10}-[A-Za-z0-9]{22}$`)

// CookieName returns the name of the cookie that holds a browser's session. Over HTTPS it has the prefix that makes
// browsers prevent neighbouring hosts from setting it.
func CookieName(secure bool) string {
	if secure {
		return hostPrefix + tokenName
	}
	return tokenName
}

// Of returns a request's session token, and whether the browser added it automatically (the cookie). It looks in only
// one place: the header, else the query, else the cookie, else "Authorization: Bearer" if the value looks like a
// session token, because a proxy may put credentials of its own there.
func Of(r *http.Request) (token secret.Token, fromCookie bool) {
	if t := r.Header.Get(sdk.SessionHeader); t != "" {
		return secret.Token(t), false
	}
	if t := r.URL.Query().Get(tokenName); t != "" {
		return secret.Token(t), false
	}
	// If two cookies differ, a neighbouring host's page has planted one, and there is no way to tell which.
	cookies := r.CookiesNamed(CookieName(true))
	if len(cookies) == 0 {
		cookies = r.CookiesNamed(CookieName(false))
	}
	for _, c := range cookies {
		if c.Value != cookies[0].Value {
			return "", false
		}
	}
	if len(cookies) > 0 {
		return secret.Token(cookies[0].Value), true
	}
	return Bearer(r.Header), false
}

// Bearer returns the session token in an Authorization header, or "" if there is none.
func Bearer(h http.Header) secret.Token {
	text := h.Get("Authorization")
	if len(text) > len(scheme) && strings.EqualFold(text[:len(scheme)], scheme) &&
		tokenForm().MatchString(text[len(scheme):]) {
		return secret.Token(text[len(scheme):])
	}
	return ""
}
