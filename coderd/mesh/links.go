package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// Each pair of servers keeps one link, and each server's relay follows each other's. The server with the smaller id dials the link; the other
// one does if there is none for dialBackAfter, so a firewall or a wrong replica URL must stop both. Both ends of a link prove that they have the deployment's key, by answering what the other end chose just now:
//
//	dialer                                                  acceptor
//	GET LinkPath, token signed{from, to, nonce d}   ──▶     verifies the token, which keeps strangers from the upgrade
//	                                                ◀──     101, {nonce a, signed{from, to, nonce d}}
//	{signed{from, to, nonce a}}                     ──▶
//
// What follows is encrypted with keys that are derived from the deployment's secret and both nonces (cipherConn), so a replica URL may lead
// through a network of others.

// LinkVersion and MinLinkVersion are the newest and oldest version of the protocol between servers that this program understands.
const (
	LinkVersion    = coordinator.LinkVersion
	MinLinkVersion = coordinator.MinLinkVersion
)

const (
	// linkHeader carries the token of the request.
	linkHeader = "Coder-Mesh-Link"
	// linkLifetime bounds how long a request's token is valid. The clocks of two servers may differ by a minute each from the database's.
	linkLifetime  = 3 * time.Minute
	linkTimeout   = 10 * time.Second // for the whole handshake
	linkAsked     = "mesh link asked"
	linkAccepted  = "mesh link accepted"
	linkConfirmed = "mesh link confirmed"
	linkSecret    = "mesh link encryption"
	// dialBackAfter is how long the server with the larger id lets the other one dial. It is longer than a dial takes, so that the two do not
	// dial at the same time.
	dialBackAfter = 3 * time.Second
	// linkedPoll is how often a server looks whether a link that the other one dialed has ended.
	linkedPoll = 500 * time.Millisecond
	// complainEvery is how often a link that cannot be made is logged.
	complainEvery = time.Minute
	// maxGreeting is the longest message of the handshake, in bytes.
	maxGreeting = 8 << 10
)

// Replica is another server of the deployment.
type Replica struct {
	ID  uuid.UUID
	URL *url.URL // where this server reaches it
}

// replicas holds what runs for each other server.
type replicas struct {
	sync.Mutex
	closed bool
	byID   map[uuid.UUID]*replica
}

type replica struct {
	url    string
	cancel context.CancelFunc
	err    string // why this server's last dial failed; "" if it has not dialed
}

// linkClaim is what a server proves.
type linkClaim struct {
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

// SetReplicas links this server to the given others, and to no more. It does not block.
func (s *Service) SetReplicas(others []Replica) {
	s.replicas.Lock()
	defer s.replicas.Unlock()
	if s.replicas.closed {
		return
	}
	for id, r := range s.replicas.byID {
		if !slices.ContainsFunc(others, func(o Replica) bool { return o.ID == id && o.URL.String() == r.url }) {
			r.cancel()
			delete(s.replicas.byID, id)
		}
	}
	for _, o := range others {
		if o.ID == s.opts.ID || s.replicas.byID[o.ID] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		s.replicas.byID[o.ID] = &replica{url: o.URL.String(), cancel: cancel}
		s.done.Go(func() { s.relay.Follow(ctx, o.URL) })
		s.done.Go(func() { s.keepLink(ctx, o) })
	}
}

// endReplicas ends all links.
func (s *Service) endReplicas() {
	s.replicas.Lock()
	defer s.replicas.Unlock()
	s.replicas.closed = true
	for _, r := range s.replicas.byID {
		r.cancel()
	}
}

// keepLink dials another server whenever there is no link to it, until ctx ends.
func (s *Service) keepLink(ctx context.Context, to Replica) {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	var complained time.Time
	patience := dialBackAfter
	if slices.Compare(s.opts.ID[:], to.ID[:]) < 0 {
		patience = 0
	}
	missing := time.Now()
	for ctx.Err() == nil {
		switch {
		case s.coord.Linked(to.ID):
			retry.Reset()
			missing = time.Now()
			_ = backoff.Sleep(ctx, linkedPoll, nil) // the loop ends with ctx
			continue
		case time.Since(missing) < patience:
			_ = backoff.Sleep(ctx, patience-time.Since(missing), nil)
			continue
		}
		conn, err := s.dialLink(ctx, to)
		s.noteLink(to.ID, err)
		if err == nil {
			retry.Reset()
			if err := s.coord.Link(ctx, to.ID, conn); err != nil {
				s.log.Debug("link ended", "server", to.ID, "err", err)
			}
			missing = time.Now()
		} else if time.Since(complained) >= complainEvery && ctx.Err() == nil {
			s.log.Warn("cannot reach another server, trying again; its --replica-url must lead to it and to no other", "server", to.ID, "url", to.URL.Redacted(), "err", err)
			complained = time.Now()
		}
		if ctx.Err() != nil || retry.Wait(ctx) != nil {
			return
		}
	}
}

// noteLink remembers for ServerLinks why a link cannot be made.
func (s *Service) noteLink(to uuid.UUID, err error) {
	s.replicas.Lock()
	defer s.replicas.Unlock()
	r := s.replicas.byID[to]
	if r == nil {
		return
	}
	if r.err = ""; err != nil {
		r.err = err.Error()
	}
}

func (s *Service) dialLink(ctx context.Context, to Replica) (_ coordinator.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	claim := linkClaim{s.opts.ID, to.ID, secret.Text(16)}
	token, err := s.opts.Signer.Sign(linkAsked, claim, linkLifetime)
	if err != nil {
		return nil, err
	}
	conn, err := websock.Dial(ctx, to.URL.JoinPath(coordinator.LinkPath), websock.DialOptions{
		Header: http.Header{linkHeader: {token.Reveal()}}, ReadLimit: coordinator.MaxLinkMessage + linkOverhead,
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
	if err := s.checkProof(linkAccepted, g.Proof, claim); err != nil {
		return nil, err
	}
	encrypted, err := newCipherConn(conn, s.opts.Signer.Derive(linkSecret), s.opts.ID, claim, g.Nonce)
	if err != nil {
		return nil, err
	}
	claim.Nonce = g.Nonce
	return encrypted, s.prove(ctx, conn, linkConfirmed, claim, "")
}

// acceptLink serves a link that another server dials.
func (s *Service) acceptLink(w http.ResponseWriter, r *http.Request) error {
	var claim linkClaim
	if err := s.opts.Signer.Verify(linkAsked, secret.Token(r.Header.Get(linkHeader)), &claim); err != nil {
		return fault.New(fault.Unauthenticated, "Only servers of this deployment may link to this one")
	}
	if claim.To != s.opts.ID || claim.From == s.opts.ID || claim.From == uuid.Nil {
		return fault.New(fault.Conflict, "This is server %s, not %s", s.opts.ID, claim.To).
			WithDetail("The --replica-url of a server must lead to that server, not to a load balancer.")
	}
	conn, err := websock.Accept(w, r, websock.AcceptOptions{ReadLimit: coordinator.MaxLinkMessage + linkOverhead})
	if err != nil {
		s.log.Debug("link not upgraded", "err", err)
		return nil
	}
	ctx := context.WithoutCancel(r.Context())
	encrypted, err := s.greetDialer(ctx, conn, claim)
	if err != nil {
		s.log.Warn("another server's link was refused", "server", claim.From, "err", err)
		conn.Close(websock.StatusPolicy, "no proof")
		return nil
	}
	if err := s.coord.Link(ctx, claim.From, encrypted); err != nil {
		s.log.Debug("link ended", "server", claim.From, "err", err)
	}
	return nil
}

func (s *Service) greetDialer(ctx context.Context, conn *websock.Conn, claim linkClaim) (*cipherConn, error) {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	nonce := secret.Text(16)
	if err := s.prove(ctx, conn, linkAccepted, claim, nonce); err != nil {
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
	confirmed := claim
	confirmed.Nonce = nonce
	if err := s.checkProof(linkConfirmed, g.Proof, confirmed); err != nil {
		return nil, err
	}
	return newCipherConn(conn, s.opts.Signer.Derive(linkSecret), s.opts.ID, claim, nonce)
}

// prove sends a signed claim, with the nonce that the other end must answer.
func (s *Service) prove(ctx context.Context, conn *websock.Conn, purpose string, claim linkClaim, nonce string) error {
	token, err := s.opts.Signer.Sign(purpose, claim, linkLifetime)
	if err != nil {
		return err
	}
	return conn.WriteJSON(ctx, greeting{Nonce: nonce, Text: token.Reveal()})
}

func (s *Service) checkProof(purpose string, proof secret.Token, want linkClaim) error {
	var got linkClaim
	if err := s.opts.Signer.Verify(purpose, proof, &got); err != nil {
		return fmt.Errorf("the other server's proof: %w", err)
	}
	if got != want {
		return errors.New("the other server's proof is about another link")
	}
	return nil
}

// Unlinked reports whether a server lives to which there is no link now.
func (s *Service) Unlinked(server uuid.UUID) bool {
	s.replicas.Lock()
	_, lives := s.replicas.byID[server]
	s.replicas.Unlock()
	return lives && !s.coord.Linked(server)
}

// Linked returns the ids of the servers to which there is a link now.
func (s *Service) Linked() []uuid.UUID { return s.coord.Replicas() }

// AgentHere reports whether an agent is connected to this server.
func (s *Service) AgentHere(id uuid.UUID) bool { return s.coord.Here(id) }
