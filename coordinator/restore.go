package coordinator

import (
	"context"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// After each welcome an agent lists the clients that it has as peers. A restarted server knows none of them. It reads
// from each pass which session the client joined with, and asks the Authorizer. A client that may stay becomes a lost
// peer of this server's table, as if it had been connected here: it may return until LostTimeout, and a revocation
// finds it. The others are gone. So a session that ended during an outage is cut as soon as its agent is welcomed
// again, and a valid session survives, whichever end returns first.

// setPass sets the pass that agents receive for p.
func (p *peer) setPass(pass string) {
	p.pass, p.passMessage = pass, nil
	if pass != "" {
		p.passMessage = protocol.Encode(protocol.ServerMessage{Pass: &protocol.PeerPass{
			ID: p.principal.ID, Key: p.key, Pass: pass,
		}})
	}
}

// handleRestore queues the clients that an agent has. It blocks while the queue is full. The session's reader calls it.
func (s *Server) handleRestore(x *session, h protocol.Restore) error {
	if x.principal.Kind != protocol.KindAgent || x.version < protocol.VersionPasses {
		return fault.New(fault.Invalid, "only agents name the clients that they have")
	}
	if s.opts.Passes == nil {
		return nil
	}
	if x.restoring == nil { // most agents have none
		x.restoring = make(chan protocol.PeerPass, protocol.MaxRestore)
		x.own.Go(func() { s.restoreClients(x) })
	}
	for _, p := range h.Peers {
		select {
		case x.restoring <- p:
		case <-x.ctx.Done():
			return nil // the next read returns the reason
		}
	}
	return nil
}

// restoreClients decides about the clients that an agent has, until the session ends. It asks again about those that
// cannot be decided yet.
func (s *Server) restoreClients(x *session) {
	for {
		select {
		case h := <-x.restoring:
			s.decide(x, "client of an agent not checked, trying again", func() *fault.Error { return s.restore(x, h) }, func(err *fault.Error) {
				s.log.Info("client of an agent is not known here and may not stay", "peer", h.ID, "node",
					x.principal.ID, "reason", err.Message)
				s.dismiss(x, h)
			})
		case <-x.ctx.Done():
			return
		}
	}
}

// confirm checks that a client that was just added to the table may stay.
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

// decide calls ask until it has an answer or the session ends, and passes a refusal to refused.
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

// restore adds a client that an agent has to the table again, if it may see that agent.
func (s *Server) restore(x *session, h protocol.PeerPass) *fault.Error {
	s.mu.Lock()
	gen, present := s.authGen, s.peers[h.ID]
	known := present != nil && present.state != absent && present.key == h.Key
	settled := x.peer.session != x || known && x.peer.tunnels[h.ID] != nil
	var p Principal
	if settled && x.peer.session == x {
		x.peer.remember(h) // so that the agent is sent the tunnel's end
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
		if p, err = s.opts.Passes.Redeem(h.Pass); err != nil || h.Pass == "" || p.Kind != protocol.KindClient ||
			p.ID != h.ID || tailnet.ClientID(h.Key) != h.ID {
			return errUnseen()
		}
	}
	if err := s.maySee(x.ctx, p, Target{x.principal.ID, protocol.KindAgent}); err != nil {
		return err
	}
	b, err := s.revive(x, p, h, gen)
	if b != nil {
		s.admit(b)
	}
	return err
}

// errChanging reports that a change has overtaken an answer.
func errChanging() *fault.Error {
	return fault.New(fault.Unavailable, "permissions are changing too fast to decide")
}

// revive adds a client that the Authorizer allowed in generation gen to the table, with its tunnel to x's agent. It
// returns the binding of a key that the relay must admit.
func (s *Server) revive(x *session, principal Principal, h protocol.PeerPass, gen uint64) (*binding, *fault.Error) {
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
		return nil, errChanging() // the relay is releasing the key
	}
	b := s.bind(h.Key, h.ID)
	p.principal, p.state, p.key, p.stamp = principal, lost, h.Key, 0
	p.since, p.lastSeen = time.Now(), time.Now()
	p.setPass(h.Pass)
	s.byAddr.Store(tailnet.Addr(h.ID), principal)
	x.peer.remember(h)
	s.link(p, x.peer)
	s.awaitReturn(p)
	return b, nil
}

// remember notes that the agent p has a client that this server did not introduce.
func (p *peer) remember(h protocol.PeerPass) {
	if p.views[h.ID].key.IsZero() {
		p.views[h.ID] = view{key: h.Key, pass: h.Pass}
	}
}

// dismiss notifies an agent that a client is gone, unless the client has been introduced by now.
func (s *Server) dismiss(x *session, h protocol.PeerPass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.peer.session == x && x.peer.views[h.ID].key.IsZero() {
		x.goodbyes = append(x.goodbyes, protocol.Encode(protocol.ServerMessage{Gone: &protocol.PeerGone{
			ID: h.ID, Key: h.Key,
		}}))
		x.wake.Poke()
	}
}
