package apps

import (
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/region"
)

// A region proxy asks about every visitor, and again every few seconds while a visit lasts. For a visit that is allowed
// it receives a visa, which the agent checks, and its node may be introduced to that agent until the visa expires.

// continued is the content of a VisitResponse's Visit: who visits what, so that the visit outlasts the visitor's token.
type continued struct {
	claims
	Place  appproxy.Place `json:"p"`
	ByPath bool           `json:"b,omitempty"`
}

// visitRegion answers a region proxy's question.
func (s *Service) visitRegion(w http.ResponseWriter, r *http.Request) error {
	proxy, err := s.regionProxy(r)
	if err != nil {
		return err
	}
	var req region.VisitRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if req.Terminal != nil {
		return s.visitTerminal(w, r, proxy, req)
	}
	ctx, at := r.Context(), siteOf(proxy.ID)
	var v verdict
	if req.Visit != "" {
		var c continued
		if err := s.opts.Signer.Verify(purposeVisit, req.Visit, &c); err != nil ||
			c.Scope != string(at)+req.Node.String() {
			return fault.New(fault.Forbidden, "The visit has ended.")
		}
		req.Question = appproxy.Question{Place: c.Place, ByPath: c.ByPath}
		if v.found, err = s.resolve(ctx, c.Place); err != nil {
			return err
		}
		if c.Key != "" {
			if v.who, err = s.visitorOf(ctx, c.claims, ""); err != nil {
				return err
			}
		}
		v.may = v.ok && v.who.actor.UserID == c.User && v.who.may(v.target)
	} else if v, err = s.judge(ctx, at, req.Question, nil); err != nil {
		return err
	}
	if !v.may && req.Visit == "" {
		s.refused(v.who, v.found, req.Addr, req.UserAgent, proxy.Name)
	}
	resp := region.VisitResponse{Answer: v.answer()}
	if v.may && v.target.Running && v.target.Unusable == "" {
		if err := s.grant(r, proxy, req, v, &resp); err != nil {
			return err
		}
	}
	return httpapi.Write(w, http.StatusOK, resp)
}

// grant lets a proxy reach the app of an allowed visit for a while, and records the visit.
func (s *Service) grant(
	r *http.Request, proxy regions.Proxy, req region.VisitRequest, v verdict, resp *region.VisitResponse,
) (err error) {
	if req.Node == uuid.Nil {
		return fault.New(fault.Invalid, "The region proxy names no node.")
	}
	t := v.target
	if len(t.key) == 0 {
		return fault.New(fault.Unavailable, "The workspace's agent has no token.")
	}
	resp.ID = uuid.NewSHA1(req.Node,
		fmt.Appendf(nil, "%s/%s:%d/%s", v.who.actor.KeyID, t.AgentID, t.Port, t.Place.Label()))
	resp.Visa, err = visa.Sign(t.key, visa.Visa{
		Visit: resp.ID, Agent: t.AgentID, Node: req.Node, User: v.who.actor.UserID, Port: t.Port,
		Expires: time.Now().Add(visa.Lifetime).Unix(),
	})
	if err != nil {
		return err
	}
	resp.Visit, err = s.opts.Signer.Sign(purposeVisit, continued{
		claims{
			User: v.who.actor.UserID, Key: v.who.actor.KeyID, Scope: string(siteOf(proxy.ID)) + req.Node.String(),
		}, req.Question.Place, req.Question.ByPath,
	}, 2*visa.Lifetime)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if err := s.opts.Regions.Grant(ctx, proxy, req.Node, t.AgentID, visa.Lifetime); err != nil {
		return err
	}
	s.used(ctx, v.who, t)
	session, done := s.recorded.request(sessionOf(v.who, t, req.Addr, req.UserAgent, proxy.Name))
	defer done()
	if session != nil {
		session.traffic.In.Add(plausible(req.In))
		session.traffic.Out.Add(plausible(req.Out))
		if req.Status >= 100 && req.Status < 600 {
			session.traffic.Status.CompareAndSwap(0, req.Status)
		}
	}
	return nil
}

// maxReported is how many bytes a proxy may report for a visit at once: what 100 Gbit/s carry in the lifetime of a
// visa.
const maxReported = int64(visa.Lifetime/time.Second) * 100e9 / 8

// plausible bounds what a proxy reports, so that its mistakes cannot make a session's sums overflow.
func plausible(bytes int64) int64 { return min(max(bytes, 0), maxReported) }

// redeemRegion exchanges a code for a token of an app at a region proxy.
func (s *Service) redeemRegion(w http.ResponseWriter, r *http.Request) error {
	proxy, err := s.regionProxy(r)
	if err != nil {
		return err
	}
	var x appproxy.Exchange
	if err := httpapi.Read(w, r, &x); err != nil {
		return err
	}
	token, err := s.redeem(r.Context(), siteOf(proxy.ID), x)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, region.RedeemResponse{Token: token})
}

// regionProxy returns the proxy that sends a request.
func (s *Service) regionProxy(r *http.Request) (regions.Proxy, error) {
	return s.opts.Regions.Authenticate(r.Context(), secret.Token(r.Header.Get(sdk.ProxyTokenHeader)))
}
