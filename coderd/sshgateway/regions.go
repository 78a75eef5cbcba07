package sshgateway

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/coderd/sshkeys"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/region"
)

// The gateway of a region proxy asks these questions. Each is answered for a key that its user has allowed at that
// proxy, with the rights that the user has at the moment: nothing is remembered but what the answers contain.

// Purposes of signed answers.
const (
	purposeVisit = "ssh visit"
	purposeStart = "ssh start"
)

// startLifetime bounds how long a proxy may ask about a start.
const startLifetime = time.Hour

// regionVisit is the content of a renewal: whose key has what open, and since when.
type regionVisit struct {
	ID      uuid.UUID `json:"v"`
	Proxy   uuid.UUID `json:"x"`
	Node    uuid.UUID `json:"n"`
	Key     uuid.UUID `json:"k"`
	User    uuid.UUID `json:"u"`
	Agent   uuid.UUID `json:"a"`
	Service uint16    `json:"s"`
	Since   time.Time `json:"t"`
}

// regionStart is what a proxy may ask about.
type regionStart struct {
	Proxy uuid.UUID `json:"x"`
	Key   uuid.UUID `json:"k"`
	Build uuid.UUID `json:"b"`
}

// regionRoutes registers the routes for region proxies, which show their tokens: they are not users.
func (g *Gateway) regionRoutes(mux *httpapi.Mux) {
	uncounted, exempt := httpapi.Uncounted("region proxies ask often"), audit.Exempt("the connection log records visits")
	mux.Handle("POST "+region.SSHKeyPath, rbac.Public, g.regionKey, uncounted, exempt)
	mux.Handle("POST "+region.SSHVisitPath, rbac.Public, g.openAtRegion, uncounted, exempt)
	mux.Handle("POST "+region.SSHStartPath, rbac.Public, g.startAtRegion, uncounted,
		audit.Exempt("the build records who started it"))
	mux.Handle("POST "+region.SSHHostKeyPath, rbac.Public, g.regionHostKey, uncounted, audit.Exempt("it reads"))
}

// proxy returns the proxy that sends a request.
func (g *Gateway) proxy(r *http.Request) (regions.Proxy, error) {
	return g.opts.Regions.Authenticate(r.Context(), secret.Token(r.Header.Get(sdk.ProxyTokenHeader)))
}

// parse returns a registered key's text. Certificates sign in no one at regions: a CA's signature says for how long,
// and not where.
func parse(wire []byte) (ssh.PublicKey, error) {
	key, err := ssh.ParsePublicKey(wire)
	if _, cert := key.(*ssh.Certificate); err != nil || cert {
		return nil, fault.New(fault.Unauthenticated, "This is not an SSH key that signs in at regions.")
	}
	return key, nil
}

// regionKey tells a proxy whether a key signs someone in there. Whose it is, it does not tell.
func (g *Gateway) regionKey(w http.ResponseWriter, r *http.Request) error {
	proxy, err := g.proxy(r)
	if err != nil {
		return err
	}
	var req region.SSHKeyRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	key, err := parse(req.Key)
	if err != nil {
		return err
	}
	if !req.Proven {
		if _, err := g.opts.Keys.Find(r.Context(), key); err != nil {
			return err
		}
		return httpapi.Write(w, http.StatusOK, region.SSHKeyResponse{})
	}
	holder, err := g.opts.Keys.AuthenticateAt(r.Context(), key, proxy.ID, proxy.Name)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, region.SSHKeyResponse{ID: holder.KeyID})
}

// regionVisitor returns who comes with a key to a proxy, if its user has allowed that.
func (g *Gateway) regionVisitor(
	ctx context.Context, proxy regions.Proxy, wire []byte, id uuid.UUID,
) (sshkeys.Holder, rbac.Actor, error) {
	key, err := parse(wire)
	if err != nil {
		return sshkeys.Holder{}, rbac.Actor{}, err
	}
	holder, err := g.opts.Keys.FindAt(ctx, key, proxy.ID, proxy.Name)
	if err == nil && holder.KeyID != id {
		err = errAddedAgain()
	}
	if err != nil {
		return sshkeys.Holder{}, rbac.Actor{}, err
	}
	actor, err := g.opts.Accounts.Actor(ctx, holder.UserID)
	return holder, actor, err
}

// openAtRegion lets a proxy reach one service of one agent for a key's holder, for the lifetime of a visa.
func (g *Gateway) openAtRegion(w http.ResponseWriter, r *http.Request) error {
	proxy, err := g.proxy(r)
	if err != nil {
		return err
	}
	var req region.VisitRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if req.SSH == nil || req.Node == uuid.Nil {
		return fault.New(fault.Invalid, "The region proxy names no key or no node.")
	}
	ctx, asked := r.Context(), req.SSH
	var v regionVisit
	if req.Visit != "" {
		err := g.opts.Signer.Verify(purposeVisit, req.Visit, &v)
		if err != nil || v.Proxy != proxy.ID || v.Node != req.Node || v.Key != asked.KeyID {
			return fault.New(fault.Forbidden, "The visit has ended.")
		}
		if asked.Ended != "" {
			g.opts.Connections.Report(v.ID, v.Since, v.connection(proxy, req), &audit.Ended{
				Reason: asked.Ended, In: asked.In, Out: asked.Out,
			})
			return httpapi.Write(w, http.StatusOK, region.VisitResponse{})
		}
	}
	holder, actor, err := g.regionVisitor(ctx, proxy, asked.Key, asked.KeyID)
	if err != nil {
		return err
	}
	if req.Visit == "" {
		if asked.Port != meshport.Session && asked.Port != meshport.SSH {
			return fault.New(fault.Invalid, "The region proxy asks for a port that is not SSH's.")
		}
		agent, err := g.opts.Agents.ByName(ctx, holder.UserID, asked.Name)
		if err != nil {
			tried := regionVisit{User: holder.UserID}.connection(proxy, req)
			tried.Name = asked.Name
			return g.opts.Connections.Refused(tried, err)
		}
		v = regionVisit{
			ID: uuid.New(), Proxy: proxy.ID, Node: req.Node, Key: holder.KeyID, User: holder.UserID, Agent: agent,
			Service: asked.Port, Since: time.Now(),
		}
	}
	if err := g.opts.Agents.MayConnect(ctx, actor, v.Agent); err != nil {
		if req.Visit != "" {
			return err // it ends
		}
		return g.opts.Connections.Refused(v.connection(proxy, req), err)
	}
	resp, err := g.grant(ctx, proxy, v)
	if err != nil {
		return err
	}
	if req.Visit == "" {
		g.opts.Connections.Report(v.ID, v.Since, v.connection(proxy, req), nil)
	} else if err := g.opts.Connections.Confirm(ctx, v.ID); err != nil {
		g.log.WarnContext(ctx, "cannot confirm a connection through a region", "agent", v.Agent, "err", err)
	}
	return httpapi.Write(w, http.StatusOK, resp)
}

// grant makes a visa, and lets the proxy's node be introduced to the agent as long.
func (g *Gateway) grant(
	ctx context.Context, proxy regions.Proxy, v regionVisit,
) (resp region.VisitResponse, err error) {
	resp = region.VisitResponse{ID: v.ID, Agent: v.Agent}
	if v.Service == meshport.Session {
		if resp.Blocked, err = g.opts.Agents.LoginBlocked(ctx, v.Agent); err != nil {
			return resp, err
		}
	}
	key, err := g.opts.Agents.VisaKey(ctx, v.Agent)
	if err != nil {
		return resp, err
	}
	resp.Visa, err = visa.Sign(key, visa.Visa{
		Visit: v.ID, Agent: v.Agent, Node: v.Node, User: v.User, Service: v.Service,
		Expires: time.Now().Add(visa.Lifetime).Unix(),
	})
	if err != nil {
		return resp, err
	}
	if resp.Visit, err = g.opts.Signer.Sign(purposeVisit, v, 2*visa.Lifetime); err != nil {
		return resp, err
	}
	return resp, g.opts.Regions.Grant(ctx, proxy, v.Node, v.Agent, visa.Lifetime)
}

// connection describes the visit for the connection log.
func (v regionVisit) connection(proxy regions.Proxy, req region.VisitRequest) audit.Connection {
	return audit.Connection{
		Type: audit.SSH, Agent: v.Agent, User: v.User, Addr: req.Addr, UserAgent: req.UserAgent, Region: proxy.Name,
	}
}

// startAtRegion starts the workspace of a key's holder, or tells whether a start has ended.
func (g *Gateway) startAtRegion(w http.ResponseWriter, r *http.Request) error {
	proxy, err := g.proxy(r)
	if err != nil {
		return err
	}
	var req region.SSHStartRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx := r.Context()
	_, actor, err := g.regionVisitor(ctx, proxy, req.Key, req.KeyID)
	if err != nil {
		return err
	}
	if g.opts.Workspaces == nil {
		return rbac.NotFound(rbac.Workspace)
	}
	s := regionStart{Proxy: proxy.ID, Key: req.KeyID}
	if req.Start != "" {
		var of regionStart
		if err := g.opts.Signer.Verify(purposeStart, req.Start, &of); err != nil || of.Proxy != s.Proxy ||
			of.Key != s.Key {
			return fault.New(fault.Forbidden, "This is no start of a workspace that can be asked about.")
		}
		ended, err := g.opts.Workspaces.Started(ctx, of.Build)
		if err != nil {
			return err
		}
		return httpapi.Write(w, http.StatusOK, region.SSHStartResponse{Start: req.Start, Ended: ended})
	}
	if s.Build, err = g.opts.Workspaces.Wake(ctx, actor, req.Name); err != nil {
		return err
	}
	token, err := g.opts.Signer.Sign(purposeStart, s, startLifetime)
	if err != nil {
		return err
	}
	g.log.InfoContext(ctx, "workspace started through a region's ssh gateway", "region", proxy.Name, "user",
		actor.Username, "build", s.Build)
	return httpapi.Write(w, http.StatusOK, region.SSHStartResponse{Start: token})
}

// regionHostKey gives a proxy the host key of its own gateway.
func (g *Gateway) regionHostKey(w http.ResponseWriter, r *http.Request) error {
	proxy, err := g.proxy(r)
	if err != nil {
		return err
	}
	httpapi.NoStore(w.Header())
	return httpapi.Write(w, http.StatusOK, region.SSHHostKeyResponse{Seed: g.opts.RegionKey(proxy.ID)})
}

// regionGateways returns where the gateways of connected proxies are.
func (g *Gateway) regionGateways(ctx context.Context) (sdk.List[sdk.SSHRegionGateway], error) {
	gateways, err := g.opts.Regions.SSHGateways(ctx)
	if err != nil {
		return nil, err
	}
	var out sdk.List[sdk.SSHRegionGateway]
	for _, at := range gateways {
		key, err := ssh.NewPublicKey(ed25519.NewKeyFromSeed(g.opts.RegionKey(at.Proxy)).Public())
		if err != nil {
			return nil, err
		}
		out = append(out, sdk.SSHRegionGateway{
			Region: at.Name, DisplayName: at.DisplayName, Address: at.Address, HostKey: line(key),
			Fingerprint: ssh.FingerprintSHA256(key),
		})
	}
	return out, nil
}
