package region

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/sshmux/gateway"
)

// serveSSH accepts stock SSH clients from l until ctx ends. It waits for the host key, which a server has.
func (a *apps) serveSSH(ctx context.Context, l net.Listener) error {
	key, err := a.hostKey(ctx)
	if err != nil {
		return nil // the proxy ends
	}
	g := gateway.New(sshHouse{a, key}, a.log)
	defer g.Close()
	defer context.AfterFunc(ctx, g.Close)()
	if err := g.Serve(l); err != nil {
		return fmt.Errorf("serve SSH: %w", err)
	}
	<-ctx.Done()
	return nil
}

// hostKey returns the host key of the proxy's gateway. It asks until a server answers.
func (a *apps) hostKey(ctx context.Context) (key ssh.Signer, err error) {
	ask := func() (err error) {
		key, err = a.askHostKey(ctx)
		return err
	}
	return key, a.insist(ctx, "the host key of the SSH gateway", ask)
}

func (a *apps) askHostKey(ctx context.Context) (ssh.Signer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var resp SSHHostKeyResponse
	if err := a.server.PostAsProxy(ctx, sshHostKey, struct{}{}, &resp); err != nil {
		return nil, err
	}
	if len(resp.Seed) != ed25519.SeedSize {
		return nil, errors.New("the server's answer contains no host key")
	}
	return ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(resp.Seed))
}

// sshHouse is what the SSH gateway asks: it asks the servers.
type sshHouse struct {
	*apps
	key ssh.Signer
}

func (h sshHouse) HostKeys(context.Context) []ssh.Signer { return []ssh.Signer{h.key} }

func (h sshHouse) Known(ctx context.Context, key ssh.PublicKey) error {
	_, err := h.askKey(ctx, SSHKeyRequest{Key: key.Marshal()}, key)
	return err
}

// SignIn lets a client in whose key is registered, and not allowed here: it is told so.
func (h sshHouse) SignIn(ctx context.Context, key ssh.PublicKey) (gateway.Visitor, error) {
	v := sshVisitor{apps: h.apps, key: key.Marshal()}
	resp, err := h.askKey(ctx, SSHKeyRequest{Key: v.key, Proven: true}, key)
	if fault.CodeOf(err) == fault.Forbidden {
		v.refused, err = err, nil
	}
	v.id = resp.ID
	return v, err
}

func (h sshHouse) askKey(ctx context.Context, req SSHKeyRequest, key ssh.PublicKey) (resp SSHKeyResponse, err error) {
	if _, ok := key.(*ssh.Certificate); ok {
		return resp, fault.New(fault.Unauthenticated, "SSH certificates sign in at the servers only.")
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return resp, h.server.AskAsProxy(ctx, sshKeys, req, &resp)
}

// sshVisitor is an SSH client that has signed in.
type sshVisitor struct {
	*apps
	key     []byte
	id      uuid.UUID
	refused error // why the key opens nothing here; nil if it does
}

// Open implements gateway.Visitor.
func (v sshVisitor) Open(ctx context.Context, from gateway.Source, name string, port uint16) (gateway.Session, error) {
	if v.refused != nil {
		return nil, v.refused
	}
	asked := SSH{Key: v.key, KeyID: v.id, Name: name, Port: port}
	node, err := v.join().Node()
	if err != nil {
		return nil, err
	}
	by := question{addr: from.Addr, userAgent: from.UserAgent}
	resp, err := v.ask(ctx, VisitRequest{SSH: &asked, Node: node.ID(), Addr: by.addr, UserAgent: by.userAgent})
	if err != nil {
		return nil, err
	}
	if resp.Visa == "" || resp.Agent == uuid.Nil {
		return nil, fault.New(fault.Unavailable, "The server opens no SSH at regions: it has an earlier version.")
	}
	asked.Name, asked.Port = "", 0
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.life.Err() != nil {
		return nil, errStopping()
	}
	s := &sshSession{apps: v.apps, asked: asked, node: node.ID(), blocked: resp.Blocked}
	s.visit = v.begin("workspace", by, resp.Agent, resp)
	s.visit.requests = 1 // until the session ends
	s.visit.renew = s.renewal
	context.AfterFunc(ctx, func() { s.End(gateway.ErrFinished) })
	v.working.Go(func() {
		v.keep(s.visit)
		s.ended()
	})
	return s, nil
}

// Wake implements gateway.Visitor.
func (v sshVisitor) Wake(ctx context.Context, name string) (gateway.Start, error) {
	if v.refused != nil {
		return nil, v.refused
	}
	s := sshStart{v, ""}
	resp, err := s.ask(ctx, SSHStartRequest{Name: name})
	s.start = resp.Start
	return s, err
}

// sshStart is the start of a visitor's workspace.
type sshStart struct {
	sshVisitor
	start secret.Token
}

func (s sshStart) ask(ctx context.Context, req SSHStartRequest) (resp SSHStartResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req.Key, req.KeyID = s.key, s.id
	return resp, s.server.PostAsProxy(ctx, sshStarts, req, &resp)
}

// Ended implements gateway.Start.
func (s sshStart) Ended(ctx context.Context) (bool, error) {
	resp, err := s.ask(ctx, SSHStartRequest{Start: s.start})
	return resp.Ended, err
}

// sshSession is a visit of an SSH client.
type sshSession struct {
	*apps
	visit   *visit
	asked   SSH // of renewals
	node    uuid.UUID
	blocked bool // at the beginning
}

func (s *sshSession) renewal() VisitRequest { return VisitRequest{SSH: &s.asked} }

// Context implements gateway.Session.
func (s *sshSession) Context() context.Context { return s.visit.ctx }

// Dial implements gateway.Session.
func (s *sshSession) Dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	token := s.visit.visa
	s.mu.Unlock()
	return s.dial(ctx, s.visit.agent, visa.OpenPort, token)
}

// Blocked implements gateway.Session.
func (s *sshSession) Blocked(ctx context.Context) (bool, error) {
	if !s.blocked {
		return false, nil
	}
	s.mu.Lock()
	renewal := s.visit.renewal
	s.mu.Unlock()
	from := s.visit.from
	resp, err := s.ask(ctx, VisitRequest{SSH: &s.asked, Visit: renewal, Node: s.node, Addr: from.addr,
		UserAgent: from.userAgent})
	return resp.Blocked, err
}

// Begun implements gateway.Session.
func (s *sshSession) Begun(conn net.Conn) net.Conn {
	return countedConn{conn, &s.visit.in, &s.visit.out}
}

// End implements gateway.Session.
func (s *sshSession) End(reason error) { s.visit.end(reason) }

// ended reports the end of the session.
func (s *sshSession) ended() {
	s.mu.Lock()
	renewal := s.visit.renewal
	s.mu.Unlock()
	end := s.asked
	end.Ended, end.In, end.Out = gateway.Reason(s.visit.ctx), s.visit.in.Load(), s.visit.out.Load()
	s.report(s.visit, sshVisits, VisitRequest{SSH: &end, Visit: renewal, Node: s.node, Addr: s.visit.from.addr,
		UserAgent: s.visit.from.userAgent})
}
