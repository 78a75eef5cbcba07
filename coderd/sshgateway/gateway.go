// Package sshgateway lets stock SSH clients into workspaces: `ssh ada/dev.main@ssh.coder.example.com`, with nothing installed.
//
//	OpenSSH ── SSH, over the network ── this package ── sshmux, over the mesh ── agent
//
// The name before the @ says which workspace. The key that the client proves to have says who comes: users register their public keys with
// `coder ssh-key add` (package sshkeys), or have the server certify one for hours with `coder ssh-cert` (package sshca). From there on everything is as in `coder ssh`: the same users may connect, the log of connections
// has them, and a session ends when its user may no longer connect, or its key is removed.
//
// The gateway sees what passes through it, as the server's terminals and apps do. A client that is refused learns nothing about workspaces
// before it has signed in, and afterwards only whether it may connect.
package sshgateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/sshca"
	"github.com/codermesh/codermesh/v2/coderd/sshkeys"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/hostname"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/sshmux/bridge"
)

const (
	// maxClients bounds the clients of one server. Each costs two connections and a few hundred kilobytes.
	maxClients = 4096
	// maxName bounds the names that are looked up, in bytes.
	maxName = 256
	// askTimeout bounds one question to the database.
	askTimeout = 10 * time.Second
)

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
}

// Mesh reaches agents.
type Mesh interface {
	DialAgent(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error)
}

// Gateway is the SSH gateway of a server. Make one with New. It is safe for concurrent use.
type Gateway struct {
	opts   Options
	log    *slog.Logger
	server *bridge.Server

	mu   sync.Mutex // guards the field below
	open map[*session]struct{}
	// records counts the sessions whose end is still to be recorded. It grows only in calls of the SSH server's, which Stop waits for.
	records sync.WaitGroup
}

// session is a client's connection to an agent.
type session struct {
	visitor
	agent uuid.UUID
	end   context.CancelCauseFunc // disconnects the client; the cause is the reason in the log of connections
}

// visitor is who has signed in, and with which key or certificate.
type visitor struct {
	sshkeys.Holder // without a KeyID for a certificate
	key            ssh.PublicKey
}

// visitorKey is where the permissions of a client's connection keep its visitor.
type visitorKey struct{}

// New returns a gateway without a listener. The caller must stop it.
func New(opts Options) *Gateway {
	g := &Gateway{opts: opts, log: opts.Logger, open: make(map[*session]struct{})}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.server = bridge.NewServer(bridge.ServerOptions{
		HostKeys: opts.Certificates.HostKeys, Logger: g.log, Limit: maxClients, Keys: signIn{g}, Dial: g.dial, Jump: g.jump,
	})
	return g
}

// Serve accepts clients from l until l is closed or Stop is called, and then returns nil. It closes l.
func (g *Gateway) Serve(l net.Listener) error { return g.server.Serve(l) }

// Routes registers the route that tells users where the gateway is.
func (g *Gateway) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/deployment/ssh-gateway", rbac.AnyToken, g.describe)
}

func (g *Gateway) describe(w http.ResponseWriter, _ *http.Request) error {
	key := g.opts.HostKey.PublicKey()
	return httpapi.Write(w, http.StatusOK, sdk.SSHGateway{
		Enabled: g.opts.Address != "", Address: g.opts.Address, Fingerprint: ssh.FingerprintSHA256(key),
		MaxKeyLifetime: g.opts.MaxKeyLifetime,
		HostKey:        strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))),
	})
}

// Stop ends every connection, and waits for them. It is idempotent.
func (g *Gateway) Stop() {
	for _, s := range g.sessions(uuid.Nil) {
		s.end(errStopped)
	}
	_ = g.server.Close() // fails only for listeners that are closed already
	g.records.Wait()
}

// signIn answers the SSH server's questions about keys.
type signIn struct{ *Gateway }

func (g signIn) Known(ctx context.Context, key ssh.PublicKey) bool {
	_, err := g.ask(ctx, key, g.opts.Keys.Find)
	return err == nil
}

// SignIn takes a key that the client has proven to have. The library compares the client's address with a certificate's critical option.
func (g signIn) SignIn(client ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	holder, err := g.ask(context.Background(), key, g.opts.Keys.Authenticate)
	if err != nil {
		return nil, err
	}
	permissions := &ssh.Permissions{ExtraData: map[any]any{visitorKey{}: visitor{holder, key}}}
	if cert, ok := key.(*ssh.Certificate); ok {
		permissions.CriticalOptions = cert.CriticalOptions
	}
	g.log.Debug("ssh client signed in", "peer", client.RemoteAddr(), "user", holder.UserID)
	return permissions, nil
}

// ask asks whom a certificate signs in, or with question, whom a key does. Clients are not told why it signs no one in; what is not their fault
// is logged.
func (g *Gateway) ask(ctx context.Context, key ssh.PublicKey, question func(context.Context, ssh.PublicKey) (sshkeys.Holder, error)) (holder sshkeys.Holder, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if cert, ok := key.(*ssh.Certificate); ok {
		var actor rbac.Actor
		actor, err = g.opts.Certificates.SignIn(ctx, cert)
		holder.UserID = actor.UserID
	} else {
		holder, err = question(ctx, key)
	}
	if err != nil && fault.CodeOf(err) != fault.Unauthenticated {
		g.log.ErrorContext(ctx, "cannot look up ssh key", "err", err)
	}
	return holder, err
}

// dial connects a client that has signed in to the sessions of the agent that its user name means.
func (g *Gateway) dial(ctx context.Context, client *ssh.ServerConn, say func(string)) (net.Conn, error) {
	conn, err := g.connect(ctx, client, client.User(), meshport.Session, say)
	return conn, g.told(ctx, client, err)
}

// jump connects a client to the SSH port of the agent that a destination such as dev.coder means, so that the gateway sees ciphertext only.
func (g *Gateway) jump(ctx context.Context, client *ssh.ServerConn, host string, port uint32) (conn net.Conn, ok bool, err error) {
	name, ok := hostname.Parse(host)
	if !ok || port != meshport.SSH {
		return nil, false, nil
	}
	conn, err = g.connect(ctx, client, name, meshport.SSH, func(string) {})
	return conn, true, g.told(ctx, client, err)
}

// told returns what a client may know of an error.
func (g *Gateway) told(ctx context.Context, client *ssh.ServerConn, err error) error {
	if err == nil {
		return nil
	}
	if f := fault.As(err); f != nil {
		return fmt.Errorf("%s\n%s", f.Message, f.Detail)
	}
	g.log.ErrorContext(ctx, "cannot connect ssh client", "peer", client.RemoteAddr(), "err", err)
	return fault.New(fault.Internal, "The server cannot connect you. Its log has the reason.")
}

// Why sessions end, besides the client's leaving.
var (
	errStopped  = errors.New("the server stopped")
	errRevoked  = errors.New("the user may no longer connect")
	errFinished = errors.New("closed by the client")
)

// connect opens a session with a port of the agent that a name means. It starts a stopped workspace of the visitor's own, and says so.
func (g *Gateway) connect(ctx context.Context, client *ssh.ServerConn, name string, port uint16, say func(string)) (net.Conn, error) {
	v := client.Permissions.ExtraData[visitorKey{}].(visitor)
	conn, err := g.begin(ctx, client, v, name, port, say)
	if fault.CodeOf(err) != fault.NotFound || g.opts.Workspaces == nil {
		return conn, err
	}
	woken := g.wake(ctx, v, name, say, func() error {
		conn, err = g.begin(ctx, client, v, name, port, say)
		return err
	})
	if woken != nil && fault.CodeOf(woken) != fault.NotFound {
		err = woken
	}
	return conn, err
}

// begin is connect for a workspace that runs.
func (g *Gateway) begin(ctx context.Context, client *ssh.ServerConn, v visitor, name string, port uint16, say func(string)) (net.Conn, error) {
	agent, err := g.agent(ctx, v, name)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancelCause(ctx) // which ends with the client
	s := &session{v, agent, end}
	// Track before admitting: either a revocation finds the session, or the check finds the revocation.
	g.track(s)
	conn, err := g.reach(life, s, port, say)
	if err != nil {
		g.forget(s)
		if errors.Is(context.Cause(life), errRevoked) {
			err = fault.New(fault.Forbidden, "You may no longer connect.")
		}
		end(nil)
		return nil, err
	}
	record := g.opts.Connections.Begin(audit.Connection{
		Type: audit.SSH, Agent: agent, User: v.UserID, Addr: addrOf(client.RemoteAddr()), UserAgent: string(client.ClientVersion()),
	})
	g.records.Add(1)
	context.AfterFunc(life, func() {
		defer g.records.Done()
		conn.Close()
		g.forget(s)
		reason := context.Cause(life)
		if errors.Is(reason, context.Canceled) {
			reason = errFinished
		}
		record.End(reason.Error(), 0)
	})
	return ending{audit.Counted(conn, record), end}, nil
}

// reach connects to the agent of a session that may be. Behind mesh port 22, the agent makes clients wait for its start scripts.
func (g *Gateway) reach(ctx context.Context, s *session, port uint16, say func(string)) (net.Conn, error) {
	if err := g.admit(ctx, s); err != nil {
		return nil, err
	}
	conn, err := g.opts.Mesh.DialAgent(ctx, s.agent, port)
	if err != nil || port != meshport.Session {
		return conn, err
	}
	waited, err := g.awaitScripts(ctx, s.agent, say)
	if err == nil && !waited {
		return conn, nil
	}
	conn.Close() // the agent does not keep a connection that says nothing
	if err != nil {
		return nil, err
	}
	return g.opts.Mesh.DialAgent(ctx, s.agent, port)
}

// ending is a connection whose Close ends its session.
type ending struct {
	net.Conn
	end context.CancelCauseFunc
}

func (c ending) Close() error {
	c.end(errFinished)
	return c.Conn.Close()
}

// agent returns the agent that a name means.
func (g *Gateway) agent(ctx context.Context, v visitor, name string) (uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	unknown := func() error {
		return fault.New(fault.NotFound, "No running workspace that you may connect to has the name %q.", short(name)).
			WithDetail("Names are dev, dev.main for one of several agents, and ada/dev for a workspace that Ada shares. coder list shows yours, and coder start starts one.")
	}
	if len(name) > maxName {
		return uuid.Nil, unknown()
	}
	agent, err := g.opts.Agents.ByName(ctx, v.UserID, agentName(name))
	if fault.CodeOf(err) == fault.NotFound {
		return uuid.Nil, unknown()
	}
	return agent, err
}

// agentName returns [owner/]workspace[.agent] for the ways in which an SSH client may write it: ada/dev.main, ada--dev.main or ada+dev.main.
func agentName(user string) string {
	for _, separator := range []string{"/", "--", "+"} {
		if owner, rest, ok := strings.Cut(user, separator); ok {
			return owner + "/" + rest
		}
	}
	return user
}

// short returns the beginning of a name that is too long to be one.
func short(name string) string {
	if len(name) > maxName {
		return name[:maxName] + "…"
	}
	return name
}

// admit returns an error unless the session's user may connect to its agent, with its key or certificate.
func (g *Gateway) admit(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	actor, err := g.actor(ctx, s.visitor)
	if err != nil {
		return err
	}
	return g.opts.Agents.MayConnect(ctx, actor, s.agent)
}

// actor returns a visitor with their rights of the moment, or fault.Unauthenticated if the key or certificate signs them in no more. A certificate
// that has expired since does: OpenSSH's sshd lets sessions run on, too.
func (g *Gateway) actor(ctx context.Context, v visitor) (rbac.Actor, error) {
	if cert, ok := v.key.(*ssh.Certificate); ok {
		return g.opts.Certificates.Holder(ctx, cert)
	}
	holder, err := g.opts.Keys.Find(ctx, v.key)
	if err == nil && holder != v.Holder {
		err = fault.New(fault.Unauthenticated, "The SSH key was added again since you signed in.").WithDetail("Connect again.")
	}
	if err != nil {
		return rbac.Actor{}, err
	}
	return g.opts.Accounts.Actor(ctx, v.UserID)
}

// Recheck ends the sessions of a user, or of all users if it is uuid.Nil, that they may no longer have: the user was suspended, the key was
// removed, the workspace is no longer shared. It returns an error if that could not be found out for some.
func (g *Gateway) Recheck(ctx context.Context, user uuid.UUID) error {
	var last error
	for _, s := range g.sessions(user) {
		err := g.admit(ctx, s)
		switch code := fault.CodeOf(err); {
		case err == nil:
		case code == fault.Unauthenticated || code == fault.Forbidden || code == fault.NotFound || code == fault.Conflict:
			s.end(errRevoked)
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

func addrOf(addr net.Addr) netip.Addr {
	at, _ := netip.ParseAddrPort(addr.String()) // the zero value means unknown
	return at.Addr().Unmap()
}
