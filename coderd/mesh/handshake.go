package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// Servers open connections to each other's replica URL. Both ends prove that they have the deployment's key, by
// answering what the other end chose just now:
//
//	dialer                                                  acceptor
//	GET LinkPath, token signed{from, to, nonce d}   ──▶     verifies the token, which keeps strangers from the upgrade
//	                                                ◀──     101, {nonce a, signed{from, to, nonce d}}
//	{signed{from, to, nonce a}}                     ──▶
//
// What follows is encrypted with keys that are derived from the deployment's secret and both nonces (cipherConn), so a
// replica URL may lead through a network of others.

const (
	// linkLifetime bounds how long a request's token is valid. The clocks of two servers may differ by a minute each
	// from the database's.
	linkLifetime = 3 * time.Minute
	linkTimeout  = 10 * time.Second // for the whole handshake
	// pingInterval is how long the other server may be silent before it is pinged. Two pings that stay unanswered end
	// the connection, so that a path that drops everything is noticed after three times this, and a new one is tried.
	pingInterval = 5 * time.Second
	// maxGreeting is the longest message of the handshake, in bytes.
	maxGreeting = 8 << 10
)

// use is what a connection between servers is for. A token, a proof or a key of one use is worth nothing for another.
type use struct {
	header                     string // of the request, with the token
	asked, accepted, confirmed string // what the token and both proofs are signed for
	secret                     string // from which the keys of the connection are derived
}

var (
	asLink = newUse("Coder-Mesh-Link", "mesh link")
	// asFollower: the dialer's relay follows the acceptor's.
	asFollower = newUse("Coder-Mesh-Relay", "mesh relay")
	// asLender: the acceptor's relay follows the dialer's.
	asLender = newUse("Coder-Mesh-Relay-Lent", "lent mesh relay")
)

func newUse(header, name string) use {
	return use{header, name + " asked", name + " accepted", name + " confirmed", name + " encryption"}
}

// linkServers are the two servers of a connection, with a nonce. Servers sign them to prove who they are.
type linkServers struct {
	From  uuid.UUID `json:"f"`
	To    uuid.UUID `json:"t"`
	Nonce string    `json:"n"`
}

// greeting is a message of the handshake.
type greeting struct {
	Nonce string       `json:"nonce,omitempty"`
	Proof secret.Token `json:"-"`
	Text  string       `json:"proof"`
}

func decodeGreeting(data []byte) (greeting, error) {
	var g greeting
	if len(data) > maxGreeting {
		return g, fmt.Errorf("greeting of %d bytes", len(data))
	}
	if err := json.Unmarshal(data, &g); err != nil {
		return greeting{}, fmt.Errorf("decode greeting: %w", err)
	}
	if len(g.Nonce) > 64 || g.Text == "" {
		return greeting{}, errors.New("decode greeting: no proof, or a nonce that is too long")
	}
	g.Proof, g.Text = secret.Token(g.Text), ""
	return g, nil
}

// dialReplica opens a connection to another server. It blocks until both ends have proven themselves, at most for
// linkTimeout.
func (s *Service) dialReplica(ctx context.Context, to Replica, use use) (_ *cipherConn, err error) {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	ends := linkServers{s.opts.ID, to.ID, secret.Text(16)}
	token, err := s.opts.Signer.Sign(use.asked, ends, linkLifetime)
	if err != nil {
		return nil, err
	}
	conn, err := websock.Dial(ctx, to.URL.JoinPath(protocol.LinkPath), websock.DialOptions{
		Header: http.Header{use.header: {token.Reveal()}}, ReadLimit: protocol.MaxLinkMessage + linkOverhead,
		PingInterval: pingInterval,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			conn.Close(websock.StatusPolicy, "")
		}
	}()
	data, err := conn.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("wait for the other server's proof: %w", err)
	}
	g, err := decodeGreeting(data)
	if err != nil {
		return nil, err
	}
	if err := s.checkProof(use.accepted, g.Proof, ends); err != nil {
		return nil, err
	}
	encrypted, err := newCipherConn(conn, s.opts.Signer.Derive(use.secret), s.opts.ID, ends, g.Nonce)
	if err != nil {
		return nil, err
	}
	ends.Nonce = g.Nonce
	return encrypted, s.prove(ctx, conn, use.confirmed, ends, "")
}

// acceptLink serves a connection that another server opens.
func (s *Service) acceptLink(w http.ResponseWriter, r *http.Request) error {
	use, serve := asLink, s.serveLink
	switch {
	case r.Header.Get(asFollower.header) != "":
		use, serve = asFollower, s.serveRelay
	case r.Header.Get(asLender.header) != "":
		use, serve = asLender, s.borrowRelay
	}
	var ends linkServers
	if err := s.opts.Signer.Verify(use.asked, secret.Token(r.Header.Get(use.header)), &ends); err != nil {
		return fault.New(fault.Unauthenticated, "Only servers of this deployment may link to this one")
	}
	if ends.To != s.opts.ID || ends.From == s.opts.ID || ends.From == uuid.Nil {
		return fault.New(fault.Conflict, "This is server %s, not %s", s.opts.ID, ends.To).
			WithDetail("The --replica-url of a server must lead to that server, not to a load balancer.")
	}
	conn, err := websock.Accept(w, r, websock.AcceptOptions{
		ReadLimit: protocol.MaxLinkMessage + linkOverhead, PingInterval: pingInterval,
	})
	if err != nil {
		s.log.Debug("link not upgraded", "err", err)
		return nil
	}
	ctx := context.WithoutCancel(r.Context())
	encrypted, err := s.greetDialer(ctx, conn, ends, use)
	if err != nil {
		s.log.Warn("another server's link was refused", "server", ends.From, "err", err)
		conn.Close(websock.StatusPolicy, "no proof")
		return nil
	}
	serve(ctx, ends.From, encrypted)
	return nil
}

func (s *Service) greetDialer(ctx context.Context, conn *websock.Conn, ends linkServers, use use) (*cipherConn, error) {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	nonce := secret.Text(16)
	if err := s.prove(ctx, conn, use.accepted, ends, nonce); err != nil {
		return nil, err
	}
	data, err := conn.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("wait for the other server's proof: %w", err)
	}
	g, err := decodeGreeting(data)
	if err != nil {
		return nil, err
	}
	confirmed := ends
	confirmed.Nonce = nonce
	if err := s.checkProof(use.confirmed, g.Proof, confirmed); err != nil {
		return nil, err
	}
	return newCipherConn(conn, s.opts.Signer.Derive(use.secret), s.opts.ID, ends, nonce)
}

// prove sends the signed ends, with the nonce that the other end must answer.
func (s *Service) prove(ctx context.Context, conn *websock.Conn, purpose string, ends linkServers, nonce string) error {
	token, err := s.opts.Signer.Sign(purpose, ends, linkLifetime)
	if err != nil {
		return err
	}
	return conn.WriteJSON(ctx, greeting{Nonce: nonce, Text: token.Reveal()})
}

func (s *Service) checkProof(purpose string, proof secret.Token, want linkServers) error {
	var got linkServers
	if err := s.opts.Signer.Verify(purpose, proof, &got); err != nil {
		return fmt.Errorf("the other server's proof: %w", err)
	}
	if got != want {
		return errors.New("the other server's proof is about another link")
	}
	return nil
}
