package apps

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	// A code is part of an address, and expires before it could be used elsewhere.
	codeLifetime = time.Minute
	// spentLifetime is how long a used code is remembered. Servers accept a code for signed.Leeway after its end by
	// their clocks, and the clocks of the server that made it and of the one that is asked may differ by that much
	// again.
	spentLifetime = codeLifetime + 2*signed.Leeway
	renewAfter    = appproxy.TokenLifetime / 2
	// A token in a path cannot be renewed, because the page's address cannot change.
	pathLifetime = 12 * time.Hour
)

// Purposes of signed tokens.
const (
	purposeCode          = "app code"
	purposeHost          = "app host"
	purposePath          = "app path"
	purposeVisit         = "app visit"
	purposeTerminal      = "terminal"
	purposeTerminalVisit = "terminal visit"
)

// claims are the content of a token: who may visit what.
type claims struct {
	User   uuid.UUID `json:"u"`
	Key    string    `json:"k"`
	Scope  string    `json:"s"`           // the site; then the host, or for a path the agent and the slug
	State  string    `json:"h,omitempty"` // for a code: the hash of the cookie of the browser that asked for it; for a terminal: the origin of the page
	Issued int64     `json:"i"`           // Unix time
	Nonce  string    `json:"n,omitempty"` // for a code or a terminal: two of the same second differ
}

// site is where apps are served: "" for the servers, else a region proxy. Scopes begin with it.
type site string

func siteOf(proxy uuid.UUID) site { return site(proxy.String() + " ") }

// scope returns what a token of the site is for.
func (at site) scope(p appproxy.Place, byPath bool, to found) string {
	if byPath {
		return string(at) + to.target.AgentID.String() + "/" + to.target.Place.Slug
	}
	return string(at) + p.Label()
}

// verdict is the answer to a question.
type verdict struct {
	found
	who   visitor
	may   bool
	token secret.Token // as in appproxy.Answer
}

// judge answers a question that was asked at a site. r is the request if that is this server.
func (s *Service) judge(ctx context.Context, at site, q appproxy.Question, r *http.Request) (v verdict, err error) {
	if v.found, err = s.resolve(ctx, q.Place); err != nil {
		return verdict{}, err
	}
	c, err := s.visitor(ctx, at, q, r, &v)
	if err != nil {
		return verdict{}, err
	}
	v.may = v.ok && v.who.may(v.target)
	switch {
	case v.who.by == appproxy.ByHost && time.Since(time.Unix(c.Issued, 0)) > renewAfter:
		v.token, err = s.token(c, false)
	case v.who.by == appproxy.ByDashboard && v.may:
		v.token, err = s.token(claims{
			User: v.who.actor.UserID, Key: v.who.actor.KeyID, Scope: at.scope(q.Place, true, v.found),
		}, true)
	}
	return v, err
}

// visitor finds out who proves themselves in a question, and returns the claims of their token.
func (s *Service) visitor(
	ctx context.Context, at site, q appproxy.Question, r *http.Request, v *verdict,
) (c claims, err error) {
	switch kind := q.Proof.Kind; {
	case kind == appproxy.ByHost && !q.ByPath:
		var ok bool
		if c, ok = s.claimsIn(purposeHost, q.Proof.Token, at.scope(q.Place, false, v.found)); ok {
			v.who, err = s.visitorOf(ctx, c, kind)
		}
	case kind == appproxy.ByPath && q.ByPath && v.ok:
		var ok bool
		if c, ok = s.claimsIn(purposePath, q.Proof.Token, at.scope(q.Place, true, v.found)); ok {
			v.who, err = s.visitorOf(ctx, c, kind)
		}
	case r == nil: // sessions are not for region proxies
	case q.ByPath && (kind == appproxy.BySession || kind == appproxy.ByDashboard):
		v.who.actor, err = s.opts.Accounts.Authenticate(r)
		if v.who.by = kind; fault.CodeOf(err) == fault.Unauthenticated {
			v.who, err = visitor{}, nil
		}
	case kind == appproxy.BySession:
		v.who.by = kind
		v.who.actor, err = s.opts.Accounts.AuthenticateToken(ctx, q.Proof.Token)
	}
	return c, err
}

// Decide implements appproxy.Judge for this server.
func (s *Service) Decide(r *http.Request, q appproxy.Question) (appproxy.Answer, error) {
	v, err := s.judge(r.Context(), "", q, r)
	if err != nil {
		return appproxy.Answer{}, err
	}
	if !v.may {
		s.refused(v.who, v.found, clientaddr.Of(r), r.UserAgent(), "")
	}
	return v.answer(), nil
}

func (v verdict) answer() appproxy.Answer {
	a := appproxy.Answer{SignedIn: v.who.actor.SignedIn(), Token: v.token, By: v.who.by}
	if v.may {
		a.App, a.Route, a.Holder = &v.target.App, v.target.AgentID.String(), v
	}
	return a
}

// Enter implements appproxy.Judge for this server.
func (s *Service) Enter(r *http.Request, a appproxy.Answer) (*appproxy.Visit, error) {
	v, ok := a.Holder.(verdict)
	if !ok {
		return nil, errors.New("an answer of another judge")
	}
	ctx, leave, err := s.enter(r.Context(), v.who, v.target)
	if err != nil {
		return nil, err
	}
	s.used(ctx, v.who, v.target)
	httpapi.UnboundBody(r) // the size of a visitor's request to an app has no known limit
	session, done := s.recorded.request(sessionOf(v.who, v.target, clientaddr.Of(r), r.UserAgent(), ""))
	visit := &appproxy.Visit{Context: ctx, Leave: func() {
		done()
		leave()
	}}
	if session != nil {
		visit.Traffic = &session.traffic
	}
	return visit, nil
}

// Dial implements appproxy.Judge for this server: a route is an agent's id.
func (s *Service) Dial(ctx context.Context, route string, port uint16) (net.Conn, error) {
	agent, err := uuid.Parse(route)
	if err != nil {
		return nil, err
	}
	return s.opts.Mesh.DialAgent(ctx, agent, port)
}

// used records that a workspace is in use, at most once a minute.
func (s *Service) used(ctx context.Context, who visitor, a target) {
	if !who.actor.SignedIn() {
		return // visits by others do not keep the workspace running
	}
	_, err := s.touched.Get(ctx, a.workspace, func(ctx context.Context) (struct{}, error) {
		_, err := s.opts.DB.TouchWorkspace(ctx, a.workspace)
		return struct{}{}, err
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("cannot record use of workspace", "workspace", a.workspace, "err", err)
	}
}

// Redeem implements appproxy.Judge for this server.
func (s *Service) Redeem(ctx context.Context, x appproxy.Exchange) (secret.Token, error) {
	return s.redeem(ctx, "", x)
}

// redeem exchanges a code of a site. Each code works once, and only for the browser that asked for it.
func (s *Service) redeem(ctx context.Context, at site, x appproxy.Exchange) (secret.Token, error) {
	var to found
	if x.ByPath {
		var err error
		if to, err = s.resolve(ctx, x.Place); err != nil || !to.ok {
			return "", err
		}
	}
	c, ok := s.claimsIn(purposeCode, x.Code, at.scope(x.Place, x.ByPath, to))
	if !ok || subtle.ConstantTimeCompare([]byte(c.State), []byte(x.State)) != 1 {
		return "", nil
	}
	if first, err := s.spend(ctx, x.Code); err != nil || !first {
		return "", err
	}
	return s.token(c, x.ByPath)
}

// spend marks a code as used, and reports whether it was not used before.
func (s *Service) spend(ctx context.Context, code secret.Token) (bool, error) {
	sum := sha256.Sum256([]byte(code.Reveal()))
	first, err := s.opts.DB.RedeemAppCode(ctx, dbsqlc.RedeemAppCodeParams{
		Hash: sum[:], LifeSeconds: spentLifetime.Seconds(),
	})
	if err != nil {
		return false, fmt.Errorf("redeem code: %w", err)
	}
	return first > 0, nil
}

// claimsIn opens a token of this server. ok is false if the token is malformed, has expired, or is for something other
// than scope.
func (s *Service) claimsIn(purpose string, token secret.Token, scope string) (c claims, ok bool) {
	err := s.opts.Signer.Verify(purpose, token, &c)
	return c, err == nil && c.Scope == scope
}

// token returns the token of a host or path for the user and scope of other claims.
func (s *Service) token(c claims, byPath bool) (secret.Token, error) {
	c.State, c.Nonce, c.Issued = "", "", time.Now().Unix()
	if byPath {
		return s.opts.Signer.Sign(purposePath, c, pathLifetime)
	}
	return s.opts.Signer.Sign(purposeHost, c, appproxy.TokenLifetime)
}
