// Package gateway lets stock SSH clients into workspaces: `ssh ada/dev.main@ssh.coder.example.com`, with nothing
// installed.
//
//	OpenSSH ── SSH, over the network ── this package ── sshmux or SSH, over the mesh ── agent
//
// It is the gateway of servers and of region proxies. What it knows of keys, workspaces and rights it asks its House: a
// server's asks the database, a region's asks a server.
//
// The name before the @ says which workspace. The key that the client proves to have says who comes. From there on
// everything is as in `coder ssh`: the same users may connect, the log of connections has them, and a session ends when
// its user may no longer connect, or its key is removed.
//
// The gateway sees what passes through it, unless the client jumps through it to the agent's own SSH port. A client
// that is refused learns nothing about workspaces before it has signed in, and afterwards only whether it may connect.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/hostname"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/sshmux/bridge"
)

const (
	// maxClients bounds the clients of one gateway. Each costs two connections and a few hundred kilobytes.
	maxClients = 4096
	// maxName bounds the names that are looked up, in bytes.
	maxName = 256
)

// House answers the gateway's questions. Its errors, and those of what it returns, are faults whose text users are
// shown, or are logged.
type House interface {
	// HostKeys returns what a client that comes may know the gateway by: at least one key, one of each type. A key with
	// a certificate is another type.
	HostKeys(ctx context.Context) []ssh.Signer
	// Known returns an error unless a key or certificate could sign someone in. A client that asks need not have it.
	Known(ctx context.Context, key ssh.PublicKey) error
	// SignIn returns who comes with a key that the client has proven to have.
	SignIn(ctx context.Context, key ssh.PublicKey) (Visitor, error)
}

// Visitor is who has signed in with a key or a certificate.
type Visitor interface {
	// Open begins a session with a mesh port, meshport.Session or meshport.SSH, of the agent that
	// [owner/]workspace[.agent] names. It returns fault.NotFound if no workspace that runs and that the visitor may
	// connect to has the name. The caller must end the session.
	Open(ctx context.Context, from Source, name string, port uint16) (Session, error)
	// Wake starts the visitor's own stopped workspace of a name. It returns fault.NotFound if there is none, or if
	// connections start no workspaces.
	Wake(ctx context.Context, name string) (Start, error)
}

// Source is where a visitor comes from.
type Source struct {
	Addr      netip.Addr
	UserAgent string
}

// Session is a visitor's right to connect to a port of an agent. It lasts until it is ended: by the caller, with the
// context that it was opened with, or because the visitor lost the right.
type Session interface {
	// Context ends with the session. Its cause is ErrRevoked, or a fault for users, if the visitor may no longer
	// connect.
	Context() context.Context
	Dial(ctx context.Context) (net.Conn, error)
	// Blocked reports whether logins to the agent wait for its start scripts.
	Blocked(ctx context.Context) (bool, error)
	// Begun notes that a connection is open, and returns one that counts its bytes.
	Begun(conn net.Conn) net.Conn
	// End ends the session. Only the first call counts.
	End(reason error)
}

// Start is the start of a workspace.
type Start interface {
	// Ended reports whether it has ended. It returns an error if it failed.
	Ended(ctx context.Context) (bool, error)
}

// Why sessions end, besides the client's leaving.
var (
	ErrStopped  = errors.New("the server stopped")
	ErrRevoked  = errors.New("the user may no longer connect")
	ErrFinished = errors.New("closed by the client")
)

// Reason returns why a session ended, for the log of connections: what cause its context has, or that its client left.
func Reason(ctx context.Context) string {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, context.Canceled) {
		cause = ErrFinished
	}
	return cause.Error()
}

// Gateway is an SSH gateway. Make one with New. It is safe for concurrent use.
type Gateway struct {
	house  House
	log    *slog.Logger
	server *bridge.Server
}

// visitorKey is where the permissions of a client's connection keep its Visitor.
type visitorKey struct{}

// New returns a gateway without a listener. The caller must close it. A nil log is silent.
func New(house House, log *slog.Logger) *Gateway {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{house: house, log: log}
	g.server = bridge.NewServer(bridge.ServerOptions{
		HostKeys: house.HostKeys, Logger: log, Limit: maxClients, Keys: signIn{g}, Dial: g.dial, Jump: g.jump,
	})
	return g
}

// Serve accepts clients from l until l is closed or Close is called, and then returns nil. It closes l.
func (g *Gateway) Serve(l net.Listener) error { return g.server.Serve(l) }

// Close ends every connection, and waits for them. It is idempotent.
func (g *Gateway) Close() {
	_ = g.server.Close() // fails only for listeners that are closed already
}

// signIn answers the SSH server's questions about keys. Clients are not told why a key signs no one in; what is not
// their fault is logged.
type signIn struct{ *Gateway }

func (g signIn) Known(ctx context.Context, key ssh.PublicKey) bool {
	err := g.house.Known(ctx, key)
	g.complain(ctx, err)
	return err == nil
}

// SignIn takes a key that the client has proven to have. The library compares the client's address with a certificate's
// critical option.
func (g signIn) SignIn(client ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	visitor, err := g.house.SignIn(context.Background(), key)
	if err != nil {
		g.complain(context.Background(), err)
		return nil, err
	}
	permissions := &ssh.Permissions{ExtraData: map[any]any{visitorKey{}: visitor}}
	if cert, ok := key.(*ssh.Certificate); ok {
		permissions.CriticalOptions = cert.CriticalOptions
	}
	g.log.Debug("ssh client signed in", "peer", client.RemoteAddr(), "key", ssh.FingerprintSHA256(key))
	return permissions, nil
}

func (g signIn) complain(ctx context.Context, err error) {
	if err != nil && fault.CodeOf(err) != fault.Unauthenticated {
		g.log.ErrorContext(ctx, "cannot look up ssh key", "err", err)
	}
}

// dial connects a client that has signed in to the sessions of the agent that its user name means.
func (g *Gateway) dial(ctx context.Context, client *ssh.ServerConn, say func(string)) (net.Conn, error) {
	conn, err := g.connect(ctx, client, client.User(), meshport.Session, say)
	return conn, g.explain(ctx, client, err)
}

// jump connects a client to the SSH port of the agent that a destination such as dev.coder means, so that the gateway
// sees ciphertext only.
func (g *Gateway) jump(
	ctx context.Context, client *ssh.ServerConn, host string, port uint32,
) (conn net.Conn, ok bool, err error) {
	name, ok := hostname.Parse(host)
	if !ok || port != meshport.SSH {
		return nil, false, nil
	}
	conn, err = g.connect(ctx, client, name, meshport.SSH, func(string) {})
	return conn, true, g.explain(ctx, client, err)
}

// explain returns what a client may know of an error.
func (g *Gateway) explain(ctx context.Context, client *ssh.ServerConn, err error) error {
	if err == nil {
		return nil
	}
	if f := fault.As(err); f != nil {
		return fmt.Errorf("%s\n%s", f.Message, f.Detail)
	}
	g.log.ErrorContext(ctx, "cannot connect ssh client", "peer", client.RemoteAddr(), "err", err)
	return fault.New(fault.Internal, "The server cannot connect you. Its log has the reason.")
}

// connect opens a session with a port of the agent that a name means. It starts a stopped workspace of the visitor's
// own, and says so.
func (g *Gateway) connect(
	ctx context.Context, client *ssh.ServerConn, name string, port uint16, say func(string),
) (net.Conn, error) {
	v := client.Permissions.ExtraData[visitorKey{}].(Visitor)
	from := Source{Addr: addrOf(client.RemoteAddr()), UserAgent: string(client.ClientVersion())}
	conn, err := begin(ctx, v, from, name, port, say)
	if fault.CodeOf(err) != fault.NotFound {
		return conn, err
	}
	woken := wake(ctx, v, name, say, func() error {
		conn, err = begin(ctx, v, from, name, port, say)
		return err
	})
	if woken != nil && fault.CodeOf(woken) != fault.NotFound {
		err = woken
	}
	return conn, err
}

// begin is connect for a workspace that runs.
func begin(ctx context.Context, v Visitor, from Source, name string, port uint16, say func(string)) (net.Conn, error) {
	unknown := func() error {
		return fault.New(fault.NotFound, "No running workspace that you may connect to has the name %q.", short(name)).
			WithDetail("Names are dev, dev.main for one of several agents, and ada/dev for a workspace that Ada " +
				"shares. coder list shows yours, and coder start starts one.")
	}
	if len(name) > maxName {
		return nil, unknown()
	}
	s, err := v.Open(ctx, from, agentName(name), port)
	if fault.CodeOf(err) == fault.NotFound {
		return nil, unknown()
	}
	if err != nil {
		return nil, err
	}
	conn, err := reach(s, port, say)
	if err != nil {
		if cause := context.Cause(s.Context()); errors.Is(cause, ErrRevoked) {
			err = fault.New(fault.Forbidden, "You may no longer connect.")
		} else if fault.As(cause) != nil {
			err = cause
		}
		s.End(err)
		return nil, err
	}
	counted := s.Begun(conn)
	context.AfterFunc(s.Context(), func() { conn.Close() })
	return ending{counted, s}, nil
}

// reach connects to the agent of a session. Behind mesh port 22, the agent makes clients wait for its start scripts.
func reach(s Session, port uint16, say func(string)) (net.Conn, error) {
	conn, err := s.Dial(s.Context())
	if err != nil || port != meshport.Session {
		return conn, err
	}
	waited, err := awaitScripts(s, say)
	if err == nil && !waited {
		return conn, nil
	}
	conn.Close() // the agent does not keep a connection that says nothing
	if err != nil {
		return nil, err
	}
	return s.Dial(s.Context())
}

// ending is a connection whose Close ends its session.
type ending struct {
	net.Conn
	session Session
}

func (c ending) Close() error {
	c.session.End(ErrFinished)
	return c.Conn.Close()
}

func addrOf(addr net.Addr) netip.Addr {
	at, _ := netip.ParseAddrPort(addr.String()) // the zero value means unknown
	return at.Addr().Unmap()
}
