package httpapi

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/secret"
)

type (
	actorKey   struct{}
	requestKey struct{}
)

// request is what the mux knows of a request besides its actor.
type request struct {
	id   string
	addr netip.Addr
}

// ActorFrom is who sent the request; the zero Actor on public routes.
func ActorFrom(ctx context.Context) rbac.Actor {
	a, _ := ctx.Value(actorKey{}).(rbac.Actor)
	return a
}

// WithActor is for tests of handlers outside a Mux.
func WithActor(ctx context.Context, a rbac.Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// RequestID is the request's id, which the answer carries too; "" outside a Mux.
func RequestID(ctx context.Context) string {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.id
	}
	return ""
}

// ClientAddr is the address that the request comes from, seen past trusted proxies; the zero Addr outside a Mux.
func ClientAddr(ctx context.Context) netip.Addr {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.addr
	}
	return netip.Addr{}
}

const (
	tokenHeader = "Coder-Session-Token"
	tokenName   = "coder_session_token"
)

// Token is the session token that a request shows, and whether its browser added it by itself (the cookie). Only one place
// is looked at: the header, else the query, else the cookie.
func Token(r *http.Request) (token secret.Token, fromCookie bool) {
	if t := r.Header.Get(tokenHeader); t != "" {
		return secret.Token(t), false
	}
	if t := r.URL.Query().Get(tokenName); t != "" {
		return secret.Token(t), false
	}
	// Two different ones mean that the page of a neighbouring host has planted one: whose session it is cannot be told.
	cookies := r.CookiesNamed(tokenName)
	for _, c := range cookies {
		if c.Value != cookies[0].Value {
			return "", false
		}
	}
	if len(cookies) > 0 {
		return secret.Token(cookies[0].Value), true
	}
	return "", false
}

// clientAddr walks X-Forwarded-For from the right for as long as the hops are trusted.
func (m *Mux) clientAddr(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && m.trusted(addr); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		addr = hop.Unmap()
	}
	return addr
}

func (m *Mux) trusted(addr netip.Addr) bool {
	for _, p := range m.proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
