package httpapi

import (
	"context"
	"net/http"
	"net/netip"
	"regexp"
	"strings"

	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/secret"
)

type (
	actorKey   struct{}
	requestKey struct{}
)

// request holds what the mux knows about a request besides its actor.
type request struct {
	id        string
	addr      netip.Addr
	userAgent string
	trail     Trail
}

// ActorFrom returns the sender of the request, or the zero Actor on public routes.
func ActorFrom(ctx context.Context) rbac.Actor {
	a, _ := ctx.Value(actorKey{}).(rbac.Actor)
	return a
}

// RequestID returns the request's id, which the answer also carries, or "" outside a Mux.
func RequestID(ctx context.Context) string {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.id
	}
	return ""
}

// ClientAddr returns the address that the request comes from, looking past trusted proxies, or the zero Addr outside a Mux.
func ClientAddr(ctx context.Context) netip.Addr {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.addr
	}
	return netip.Addr{}
}

// UserAgent returns the program that sent the request, as it calls itself, or "" outside a Mux.
func UserAgent(ctx context.Context) string {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.userAgent
	}
	return ""
}

const (
	tokenHeader = "Coder-Session-Token"
	tokenName   = "coder_session_token"
	hostPrefix  = "__Host-"
	bearer      = "Bearer "
)

// tokenForm matches a session token.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9]{10}-[A-Za-z0-9]{22}$`)

// CookieName returns the name of the cookie that holds a browser's session. Over HTTPS it has the prefix that makes browsers
// prevent neighbouring hosts from setting it.
func CookieName(secure bool) string {
	if secure {
		return hostPrefix + tokenName
	}
	return tokenName
}

// Planted reports whether the request's session is in a cookie that a neighbouring host's page could have set in the
// visitor's browser: one without the prefix. A server with HTTPS does not accept such a cookie from browsers. Programs may
// use it: no other host sets their cookies.
func Planted(r *http.Request) bool {
	_, fromCookie := Token(r)
	return fromCookie && len(r.CookiesNamed(CookieName(true))) == 0 && FromBrowser(r)
}

// Token returns a request's session token, and whether the browser added it automatically (the cookie). It looks in only one
// place: the header, else the query, else the cookie, else "Authorization: Bearer" if the value looks like a session token,
// because a proxy may put credentials of its own there.
func Token(r *http.Request) (token secret.Token, fromCookie bool) {
	if t := r.Header.Get(tokenHeader); t != "" {
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
	return BearerToken(r.Header), false
}

// BearerToken returns the session token in an Authorization header, or "" if there is none.
func BearerToken(h http.Header) secret.Token {
	text := h.Get("Authorization")
	if len(text) > len(bearer) && strings.EqualFold(text[:len(bearer)], bearer) && tokenForm.MatchString(text[len(bearer):]) {
		return secret.Token(text[len(bearer):])
	}
	return ""
}

// Clients finds the addresses of clients.
type Clients struct {
	// Proxies may name the client's address in Headers. If nil, no proxy may.
	Proxies []netip.Prefix
	// Headers lists the headers in which proxies name it; the first that is present counts. If nil, it is X-Forwarded-For.
	Headers []string
}

// Addr returns the peer's address, or the address that a trusted proxy forwards for. A header with one address is taken as it
// is; a list is followed from the right as long as the hops are trusted.
func (c Clients) Addr(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap()
	headers := c.Headers
	if len(headers) == 0 {
		headers = []string{"X-Forwarded-For"}
	}
	for _, name := range headers {
		values := r.Header.Values(name)
		if len(values) == 0 {
			continue
		}
		hops := strings.Split(strings.Join(values, ","), ",")
		for i := len(hops) - 1; i >= 0 && c.trusted(addr); i-- {
			hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
			if err != nil {
				break
			}
			addr = hop.Unmap()
		}
		break
	}
	return addr
}

func (c Clients) trusted(addr netip.Addr) bool {
	for _, p := range c.Proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
