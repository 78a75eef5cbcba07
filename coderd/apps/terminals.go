package apps

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/region"
)

// A terminal at a region proxy begins with a token that the dashboard asks for. It works once, for a minute, at one
// proxy, for one agent, and for pages of the origin that asked for it. What follows is a visit as of an app: the proxy
// renews it and ends it when the servers refuse.

// terminalVisit is the content of a renewal: who has which terminal open, and since when.
type terminalVisit struct {
	claims
	ID    uuid.UUID `json:"v"`
	Since time.Time `json:"t"`
}

func terminalScope(at site, agent uuid.UUID) string { return string(at) + "terminal " + agent.String() }

// terminalToken gives a signed-in user a token for a terminal at a region proxy.
func (s *Service) terminalToken(w http.ResponseWriter, r *http.Request) error {
	var req sdk.TerminalTokenRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx := r.Context()
	actor := httpapi.ActorFrom(ctx)
	if err := s.opts.Agents.MayConnect(ctx, actor, req.AgentID); err != nil {
		return s.opts.Connections.Refused(audit.Connection{
			Type: audit.Terminal, Agent: req.AgentID, User: actor.UserID, Addr: httpapi.ClientAddr(ctx),
			UserAgent: r.UserAgent(),
		}, err)
	}
	sites, err := s.opts.Regions.Sites(ctx)
	if err != nil {
		return err
	}
	for _, at := range sites {
		if !isTerminal(req.URL, at.URL, req.AgentID) {
			continue
		}
		token, err := s.opts.Signer.Sign(purposeTerminal, claims{
			User: actor.UserID, Key: actor.KeyID, Scope: terminalScope(siteOf(at.Proxy), req.AgentID),
			State: r.Header.Get("Origin"), Issued: time.Now().Unix(),
			Nonce: secret.Text(8),
		}, codeLifetime)
		if err != nil {
			return err
		}
		httpapi.NoStore(w.Header())
		return httpapi.Write(w, http.StatusOK, sdk.TerminalTokenResponse{SignedToken: token.Reveal()})
	}
	return fault.New(fault.Invalid, "This is not the address of the agent's terminal at a connected region proxy.").
		WithField("url", "must be a region's path_app_url, followed by /api/v2/workspaceagents/{agent}/pty")
}

// isTerminal reports whether an address is exactly that of an agent's terminal at a proxy.
func isTerminal(address string, base *url.URL, agent uuid.UUID) bool {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Opaque != "" || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	scheme := strings.Replace(u.Scheme, "ws", "http", 1)
	return scheme == base.Scheme && strings.EqualFold(u.Host, base.Host) &&
		u.Path == strings.TrimSuffix(base.Path, "/")+strings.Replace(region.TerminalPath, "{agent}", agent.String(), 1)
}

// visitTerminal answers a region proxy's question about a terminal.
func (s *Service) visitTerminal(
	w http.ResponseWriter, r *http.Request, proxy regions.Proxy, req region.VisitRequest,
) error {
	ctx, asked := r.Context(), req.Terminal
	if req.Node == uuid.Nil {
		return fault.New(fault.Invalid, "The region proxy names no node.")
	}
	at := siteOf(proxy.ID)
	scope := terminalScope(at, asked.Agent) // of the token; that of a visit also names the node
	var v terminalVisit
	if req.Visit != "" {
		scope += " " + req.Node.String()
		if err := s.opts.Signer.Verify(purposeTerminalVisit, req.Visit, &v); err != nil || v.Scope != scope {
			return fault.New(fault.Forbidden, "The terminal has ended.")
		}
		if asked.Ended != "" {
			s.opts.Connections.Report(v.ID, v.Since, v.connection(proxy, req), &audit.Ended{
				Reason: asked.Ended, In: asked.In, Out: asked.Out,
			})
			return httpapi.Write(w, http.StatusOK, region.VisitResponse{})
		}
	} else {
		c, ok := s.claimsIn(purposeTerminal, asked.Token, scope)
		if !ok || c.State != asked.Origin {
			return errNoTerminal()
		}
		switch first, err := s.spend(ctx, asked.Token); {
		case err != nil:
			return err
		case !first:
			return errNoTerminal()
		}
		v = terminalVisit{claims{
			User: c.User, Key: c.Key, Scope: scope + " " + req.Node.String(),
		}, uuid.New(), time.Now()}
	}
	who, err := s.visitorOf(ctx, v.claims, "")
	if err != nil {
		return err
	}
	if !who.actor.SignedIn() {
		return errNoTerminal()
	}
	if err := s.opts.Agents.MayConnect(ctx, who.actor, asked.Agent); err != nil {
		if req.Visit != "" {
			return err // it ends
		}
		return s.opts.Connections.Refused(v.connection(proxy, req), err)
	}
	return s.grantTerminal(w, r, proxy, req, v)
}

// grantTerminal lets a proxy reach an agent's terminals for a while, and records that.
func (s *Service) grantTerminal(
	w http.ResponseWriter, r *http.Request, proxy regions.Proxy, req region.VisitRequest, v terminalVisit,
) error {
	ctx, agent := r.Context(), req.Terminal.Agent
	key, err := s.opts.DB.GetAgentKey(ctx, agent)
	switch {
	case database.IsNotFound(err) || err == nil && len(key) == 0:
		return rbac.NotFound(rbac.Agent)
	case err != nil:
		return fmt.Errorf("read agent's key: %w", err)
	}
	resp := region.VisitResponse{ID: v.ID}
	resp.Visa, err = visa.Sign(key, visa.Visa{
		Visit: v.ID, Agent: agent, Node: req.Node, User: v.User, Terminal: true,
		Expires: time.Now().Add(visa.Lifetime).Unix(),
	})
	if err != nil {
		return err
	}
	if resp.Visit, err = s.opts.Signer.Sign(purposeTerminalVisit, v, 2*visa.Lifetime); err != nil {
		return err
	}
	if err := s.opts.Regions.Grant(ctx, proxy, req.Node, agent, visa.Lifetime); err != nil {
		return err
	}
	if req.Visit == "" {
		s.opts.Connections.Report(v.ID, v.Since, v.connection(proxy, req), nil)
	} else if err := s.opts.DB.SeeConnections(ctx, []uuid.UUID{v.ID}); err != nil {
		s.log.Warn("cannot confirm a terminal's connection", "agent", agent, "err", err)
	}
	return httpapi.Write(w, http.StatusOK, resp)
}

// connection describes the terminal for the connection log.
func (v terminalVisit) connection(proxy regions.Proxy, req region.VisitRequest) audit.Connection {
	return audit.Connection{
		Type: audit.Terminal, Agent: req.Terminal.Agent, User: v.User, Addr: req.Addr, UserAgent: req.UserAgent,
		Region: proxy.Name,
	}
}

func errNoTerminal() error {
	return fault.New(fault.Forbidden, "The token does not open a terminal here.").
		WithDetail("Open the terminal from the dashboard.")
}
