// Package sshgateway is the SSH gateway of servers (package sshmux/gateway), and what the servers answer to those of
// region proxies.
//
// Users register their public keys with `coder ssh-key add` (package sshkeys), or have the server certify one for hours
// with `coder ssh-cert` (package sshca). At a region, a key signs in only if its user has allowed it there, and
// certificates sign in no one (regions.go).
package sshgateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/coderd/sshca"
	"github.com/codermesh/codermesh/v2/coderd/sshkeys"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/sshmux/gateway"
)

// askTimeout bounds one question to the database.
const askTimeout = 10 * time.Second

// Options are what a gateway needs. All are required, except the logger.
type Options struct {
	Logger  *slog.Logger
	HostKey ssh.Signer // the same at every server of the deployment
	Address string     // HOST:PORT at which users reach the gateway; "" if there is no listener
	// MaxKeyLifetime is what users are told of sshkeys.Options.
	MaxKeyLifetime time.Duration
	Keys           *sshkeys.Service
	Certificates   *sshca.Service
	Accounts       Accounts
	Agents         Agents
	Mesh           Mesh
	Connections    *audit.Connections
	// Workspaces starts stopped ones. Nil: nothing does.
	Workspaces Workspaces
	// Regions are the region proxies, and RegionKey returns the seed of the host key of one.
	Regions   *regions.Service
	RegionKey func(proxy uuid.UUID) []byte
	Signer    *signed.Signer
}

// Workspaces starts workspaces for their owners.
type Workspaces interface {
	Wake(ctx context.Context, actor rbac.Actor, name string) (build uuid.UUID, err error)
	Started(ctx context.Context, build uuid.UUID) (ended bool, err error)
}

// Accounts are the users.
type Accounts interface {
	// Actor returns the user with their current rights, or fault.Unauthenticated.
	Actor(ctx context.Context, user uuid.UUID) (rbac.Actor, error)
}

// Agents decides who may connect to which agent.
type Agents interface {
	ByName(ctx context.Context, user uuid.UUID, name string) (uuid.UUID, error)
	MayConnect(ctx context.Context, actor rbac.Actor, agent uuid.UUID) error
	// LoginBlocked reports whether logins to an agent wait for its start scripts.
	LoginBlocked(ctx context.Context, agent uuid.UUID) (bool, error)
	// VisaKey returns the key with which visas for an agent are signed, or fault.NotFound.
	VisaKey(ctx context.Context, agent uuid.UUID) ([]byte, error)
}

// Mesh reaches agents.
type Mesh interface {
	DialAgent(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error)
}

// Gateway is the SSH gateway of a server. Make one with New. It is safe for concurrent use.
type Gateway struct {
	opts   Options
	log    *slog.Logger
	server *gateway.Gateway

	mu   sync.Mutex // guards the field below
	open map[*session]struct{}
	// records counts the sessions whose end is still to be recorded. It grows only in calls of the SSH server's, which
	// Stop waits for.
	records sync.WaitGroup
}

// visitor is who has signed in, and with which key or certificate.
type visitor struct {
	sshkeys.Holder // without a KeyID for a certificate
	key            ssh.PublicKey
	gateway        *Gateway
}

// session is a client's connection to an agent.
type session struct {
	visitor
	agent uuid.UUID
	port  uint16
	from  gateway.Source
	life  context.Context
	end   context.CancelCauseFunc // disconnects the client; the cause is the reason in the log of connections
}

// New returns a gateway without a listener. The caller must stop it.
func New(opts Options) *Gateway {
	g := &Gateway{opts: opts, log: opts.Logger, open: make(map[*session]struct{})}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.server = gateway.New(house{g}, g.log)
	return g
}

// Serve accepts clients from l until l is closed or Stop is called, and then returns nil. It closes l.
func (g *Gateway) Serve(l net.Listener) error { return g.server.Serve(l) }

// Routes registers the route that tells users where the gateways are, and those of the gateways of region proxies.
func (g *Gateway) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/deployment/ssh-gateway", rbac.AnyToken, g.describe)
	g.regionRoutes(mux)
}

func (g *Gateway) describe(w http.ResponseWriter, r *http.Request) error {
	key := g.opts.HostKey.PublicKey()
	regions, err := g.regionGateways(r.Context())
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.SSHGateway{
		Enabled: g.opts.Address != "", Address: g.opts.Address, Fingerprint: ssh.FingerprintSHA256(key),
		MaxKeyLifetime: g.opts.MaxKeyLifetime, HostKey: line(key), Regions: regions,
	})
}

// line returns a public key as in a line of known_hosts, without the host.
func line(key ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) }

// Stop ends every connection, and waits for them. It is idempotent.
func (g *Gateway) Stop() {
	for _, s := range g.sessions(uuid.Nil) {
		s.end(gateway.ErrStopped)
	}
	g.server.Close()
	g.records.Wait()
}

// house answers the questions of this server's own gateway.
type house struct{ *Gateway }

func (g house) HostKeys(ctx context.Context) []ssh.Signer { return g.opts.Certificates.HostKeys(ctx) }

func (g house) Known(ctx context.Context, key ssh.PublicKey) error {
	_, err := g.ask(ctx, key, g.opts.Keys.Find)
	return err
}

func (g house) SignIn(ctx context.Context, key ssh.PublicKey) (gateway.Visitor, error) {
	holder, err := g.ask(ctx, key, g.opts.Keys.Authenticate)
	return visitor{holder, key, g.Gateway}, err
}

// ask asks whom a certificate signs in, or with question, whom a key does.
func (g *Gateway) ask(
	ctx context.Context, key ssh.PublicKey, question func(context.Context, ssh.PublicKey) (sshkeys.Holder, error),
) (holder sshkeys.Holder, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if cert, ok := key.(*ssh.Certificate); ok {
		actor, err := g.opts.Certificates.SignIn(ctx, cert)
		return sshkeys.Holder{UserID: actor.UserID}, err
	}
	return question(ctx, key)
}

// Open implements gateway.Visitor.
func (v visitor) Open(ctx context.Context, from gateway.Source, name string, port uint16) (gateway.Session, error) {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	tried := audit.Connection{
		Type: audit.SSH, User: v.UserID, Addr: from.Addr, UserAgent: from.UserAgent, Name: name,
	}
	agent, err := v.gateway.opts.Agents.ByName(asking, v.UserID, name)
	if err != nil {
		return nil, v.gateway.opts.Connections.Refused(tried, err)
	}
	tried.Agent = agent
	s := &session{visitor: v, agent: agent, port: port, from: from}
	s.life, s.end = context.WithCancelCause(ctx) // which ends with the client
	// Track before admitting: either a revocation finds the session, or the check finds the revocation.
	v.gateway.track(s)
	context.AfterFunc(s.life, func() { v.gateway.forget(s) })
	if err := s.admit(ctx); err != nil {
		s.end(nil)
		return nil, v.gateway.opts.Connections.Refused(tried, err)
	}
	return s, nil
}

// Wake implements gateway.Visitor.
func (v visitor) Wake(ctx context.Context, name string) (gateway.Start, error) {
	if v.gateway.opts.Workspaces == nil {
		return nil, rbac.NotFound(rbac.Workspace)
	}
	actor, err := v.actor(ctx)
	if err != nil {
		return nil, err
	}
	build, err := v.gateway.opts.Workspaces.Wake(ctx, actor, name)
	return start{v.gateway.opts.Workspaces, build}, err
}

// start is a build that starts a workspace.
type start struct {
	workspaces Workspaces
	build      uuid.UUID
}

func (s start) Ended(ctx context.Context) (bool, error) { return s.workspaces.Started(ctx, s.build) }

// Context implements gateway.Session.
func (s *session) Context() context.Context { return s.life }

// Dial implements gateway.Session.
func (s *session) Dial(ctx context.Context) (net.Conn, error) {
	return s.gateway.opts.Mesh.DialAgent(ctx, s.agent, s.port)
}

// Blocked implements gateway.Session.
func (s *session) Blocked(ctx context.Context) (bool, error) {
	return s.gateway.opts.Agents.LoginBlocked(ctx, s.agent)
}

// Begun implements gateway.Session.
func (s *session) Begun(conn net.Conn) net.Conn {
	g := s.gateway
	record := g.opts.Connections.Begin(audit.Connection{
		Type: audit.SSH, Agent: s.agent, User: s.UserID, Addr: s.from.Addr, UserAgent: s.from.UserAgent,
	})
	g.records.Add(1)
	context.AfterFunc(s.life, func() {
		defer g.records.Done()
		record.End(gateway.Reason(s.life), 0)
	})
	return audit.Counted(conn, record)
}

// End implements gateway.Session.
func (s *session) End(reason error) { s.end(reason) }

// admit returns an error unless the session's user may connect to its agent, with its key or certificate.
func (s *session) admit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	actor, err := s.actor(ctx)
	if err != nil {
		return err
	}
	return s.gateway.opts.Agents.MayConnect(ctx, actor, s.agent)
}

// actor returns a visitor with their rights of the moment, or fault.Unauthenticated if the key or certificate signs
// them in no more. A certificate that has expired since does: OpenSSH's sshd lets sessions run on, too.
func (v visitor) actor(ctx context.Context) (rbac.Actor, error) {
	if cert, ok := v.key.(*ssh.Certificate); ok {
		return v.gateway.opts.Certificates.Holder(ctx, cert)
	}
	holder, err := v.gateway.opts.Keys.Find(ctx, v.key)
	if err == nil && holder != v.Holder {
		err = errAddedAgain()
	}
	if err != nil {
		return rbac.Actor{}, err
	}
	return v.gateway.opts.Accounts.Actor(ctx, v.UserID)
}

func errAddedAgain() error {
	return fault.New(fault.Unauthenticated, "The SSH key was added again since you signed in.").
		WithDetail("Connect again.")
}

// Recheck ends the sessions of a user, or of all users if it is uuid.Nil, that they may no longer have: the user was
// suspended, the key was removed, the workspace is no longer shared. It returns an error if that could not be found out
// for some.
func (g *Gateway) Recheck(ctx context.Context, user uuid.UUID) error {
	var last error
	for _, s := range g.sessions(user) {
		err := s.admit(ctx)
		switch code := fault.CodeOf(err); {
		case err == nil:
		case code == fault.Unauthenticated || code == fault.Forbidden || code == fault.NotFound || code == fault.Conflict:
			s.end(gateway.ErrRevoked)
		default:
			last = err
		}
	}
	return last
}

// sessions returns the open ones of a user, or all.
func (g *Gateway) sessions(user uuid.UUID) (open []*session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.open {
		if user == uuid.Nil || s.UserID == user {
			open = append(open, s)
		}
	}
	return open
}

func (g *Gateway) track(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[s] = struct{}{}
}

func (g *Gateway) forget(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, s)
}
