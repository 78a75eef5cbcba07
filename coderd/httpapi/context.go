package httpapi

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/credential"
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

// ClientAddr returns the address that the request comes from, looking past trusted proxies, or the zero Addr outside a
// Mux.
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

// Planted reports whether the request's session is in a cookie that a neighbouring host's page could have set in the
// visitor's browser: one without the prefix. A server with HTTPS does not accept such a cookie from browsers. Programs
// may use it: no other host sets their cookies.
func Planted(r *http.Request) bool {
	_, fromCookie := credential.Of(r)
	return fromCookie && len(r.CookiesNamed(credential.CookieName(true))) == 0 && FromBrowser(r)
}
