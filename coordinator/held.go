package coordinator

import (
	"context"
	"time"

	"github.com/codermesh/codermesh/internal/backoff"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/tailnet"
)

// An agent that a server welcomes tells it which clients it still has as peers. A server that was restarted knows none of them: it
// reads from each pass which session the client joined with, and asks the Authorizer. A client that may stay becomes a lost peer
// of this server's table, as if it had been connected here: it may return until LostTimeout, and a revocation finds it. The others
// are gone. So a session that ends while the server is away is cut as soon as the agent is welcomed again, and a session that
// stands survives, whichever end returns first.

// setPass makes pass what agents are told of p.
func (p *peer) setPass(pass string) {
	p.pass, p.passMessage = pass, nil
	if pass != "" {
		p.passMessage = encode(ServerMessage{Pass: &PeerPass{p.principal.ID, p.key, pass}})
	}
}

// handleHeld takes what an agent has. It blocks while earlier ones are looked at.
func (s *Server) handleHeld(x *session, h Held) error {
	if x.principal.Kind != KindAgent || x.version < versionPasses {
		return fault.New(fault.Invalid, "only agents name the clients that they have")
	}
	if s.opts.Passes == nil {
		return nil
	}
	for _, p := range h.Peers {
		select {
		case x.held <- p:
		case <-x.ctx.Done():
			return nil // the next read says why
		}
	}
	return nil
}

// keepHeld decides about the clients that an agent has, until the session ends. What cannot be decided now is asked again and again.
func (s *Server) keepHeld(x *session) {
	for {
		select {
		case h := <-x.held:
			s.decide(x, "client of an agent not checked, trying again", func() *fault.Error { return s.restore(x, h) }, func(err *fault.Error) {
				s.log.Info("client of an agent is not known here and may not stay", "peer", h.ID, "node", x.principal.ID, "reason", err.Message)
				s.dismiss(x, h)
			})
		case <-x.ctx.Done():
			return
		}
	}
}

// confirm asks whether a client that has just been put into the table may be there.
func (s *Server) confirm(x *session) {
	if s.opts.StillAdmitted == nil {
		return
	}
	s.decide(x, "client not checked, trying again", func() *fault.Error {
		ctx, cancel := context.WithTimeout(x.ctx, AuthorizeTimeout)
		defer cancel()
		return asFault(s.opts.StillAdmitted(ctx, x.principal))
	}, func(err *fault.Error) { s.Revoke(x.principal.ID, err.Message) })
}

// decide asks until there is an answer or the session ends, and calls refused with a refusal.
func (s *Server) decide(x *session, undecidedText string, ask func() *fault.Error, refused func(*fault.Error)) {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		err := ask()
		switch {
		case err == nil || x.ctx.Err() != nil:
			return
		case !undecided(err):
			refused(err)
			return
		}
		s.log.Warn(undecidedText, "peer", x.principal.ID, "err", err)
		if retry.Wait(x.ctx) != nil {
			return
		}
	}
}

// restore makes a client that an agent has a participant again, if it may see that agent.
func (s *Server) restore(x *session, h PeerPass) *fault.Error {
	s.mu.Lock()
	gen, present := s.authGen, s.peers[h.ID]
	known := present != nil && present.state != absent && present.key == h.Key
	settled := x.peer.session != x || known && x.peer.tunnels[h.ID] != nil
	var p Principal
	if settled && x.peer.session == x {
		x.peer.remember(h) // so that the tunnel's end is told
	}
	if known {
		p = present.principal
	}
	s.mu.Unlock()
	if settled {
		return nil
	}
	if !known {
		var err error
		if p, err = s.opts.Passes.Redeem(h.Pass); err != nil || h.Pass == "" || p.Kind != KindClient || p.ID != h.ID || tailnet.ClientID(h.Key) != h.ID {
			return errUnseen()
		}
	}
	if err := s.maySee(x.ctx, p, Target{x.principal.ID, KindAgent}); err != nil {
		return err
	}
	b, err := s.revive(x, p, h, gen)
	if b != nil {
		s.admit(b)
	}
	return err
}

// errChanging says that an answer was overtaken by a change.
func errChanging() *fault.Error {
	return fault.New(fault.Unavailable, "permissions are changing too fast to decide")
}

// revive puts a client that the Authorizer agreed to at the generation gen back into the table, with its tunnel to x's agent. It
// returns the binding of a key that the relay has to admit.
func (s *Server) revive(x *session, principal Principal, h PeerPass, gen uint64) (*binding, *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.peer.session != x {
		return nil, nil
	}
	if s.authGen != gen {
		return nil, errChanging()
	}
	if _, ok := s.tombstones[h.ID]; ok {
		return nil, errUnseen()
	}
	p := s.table.peer(h.ID)
	if p.state != absent {
		if p.key != h.Key || !p.principal.same(principal) {
			return nil, errUnseen()
		}
		x.peer.remember(h)
		s.link(p, x.peer)
		return nil, nil
	}
	if s.bindings[h.Key] != nil {
		s.forget(p)
		return nil, errChanging() // the relay is letting go of the key
	}
	b := &binding{key: h.Key, owner: h.ID, relay: make(chan struct{}, 1)}
	b.relay <- struct{}{}
	s.bindings[h.Key] = b
	p.principal, p.state, p.key = principal, lost, h.Key
	p.since, p.lastSeen = time.Now(), time.Now()
	p.setPass(h.Pass)
	s.byAddr.Store(tailnet.Addr(h.ID), principal)
	x.peer.remember(h)
	s.link(p, x.peer)
	s.awaitReturn(p)
	return b, nil
}

// remember notes that the agent p has a client that this server did not tell it of.
func (p *peer) remember(h PeerPass) {
	if p.views[h.ID].key.IsZero() {
		p.views[h.ID] = view{key: h.Key, pass: h.Pass}
	}
}

// dismiss tells an agent that a client is gone, unless it was introduced meanwhile.
func (s *Server) dismiss(x *session, h PeerPass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.peer.session == x && x.peer.views[h.ID].key.IsZero() {
		x.goodbyes = append(x.goodbyes, encode(ServerMessage{Gone: &PeerGone{h.ID, h.Key}}))
		x.wake.Poke()
	}
}
