package coordinator

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// precheck refuses, before the upgrade, what admissible would refuse.
func (s *Server) precheck(p Principal, h protocol.Hello) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admissible(p, h); err != nil {
		return err
	}
	return nil
}

// admissible reports whether p may connect with the hello's key. Called with mu held.
func (s *Server) admissible(p Principal, h protocol.Hello) *fault.Error {
	switch {
	case s.closed, s.draining && p.Kind != protocol.KindServer:
		return fault.New(fault.Unavailable, "the server is stopping")
	case !p.Kind.Valid() || p.ID == uuid.Nil:
		return fault.New(fault.Internal, "principal of kind %q with id %s", p.Kind, p.ID)
	case h.Key.IsZero() || h.Version < protocol.MinVersion:
		return fault.New(fault.Invalid, "the hello has no key, or version %d", h.Version)
	case (p.Kind == protocol.KindClient || p.Kind == protocol.KindProxy) && p.ID != tailnet.ClientID(h.Key):
		return fault.New(fault.Forbidden, "a client's id follows from its key")
	}
	if at, ok := s.tombstones[p.ID]; ok && !h.At.After(at) {
		return fault.New(fault.Unauthenticated, "access was revoked")
	}
	if b := s.bindings[h.Key]; b != nil && b.released == nil && b.owner != p.ID {
		return fault.New(fault.Conflict, "this node key belongs to another participant")
	}
	if row := s.peers[p.ID]; row != nil && row.state != absent && !row.principal.same(p) {
		return fault.New(fault.Conflict, "this participant is connected for someone else")
	}
	return nil
}

// join puts a connection into the table, and admits its key in the relay. On success the caller owes serving.Done.
func (s *Server) join(ctx context.Context, conn protocol.Conn, p Principal, h protocol.Hello) (*session, error) {
	if h.At.IsZero() {
		h.At = time.Now()
	}
	x := &session{
		conn: conn, principal: p, key: h.Key, joined: time.Now(), version: min(h.Version, protocol.Version),
		wake: notify.NewWake(), refused: make(map[uuid.UUID]protocol.Refused), left: make(map[uuid.UUID]struct{}),
	}
	if s.opts.Passes != nil && p.Kind == protocol.KindClient {
		var err error
		if x.pass, err = s.opts.Passes.Issue(p); err != nil {
			return nil, fmt.Errorf("issue pass: %w", err)
		}
	}
	var b, old *binding
	var silent duplicate // of the same agent, does not answer
	for {
		s.mu.Lock()
		if err := s.admissible(p, h); err != nil {
			s.mu.Unlock()
			return nil, err
		}
		if other := s.duplicate(p, h); other != (duplicate{}) && other != silent {
			s.mu.Unlock()
			alive, err := s.duplicateAnswers(ctx, p.ID, other)
			if err != nil {
				return nil, err
			}
			if alive {
				s.contested(p.ID)
				return nil, errTwoAgents()
			}
			silent = other
			continue
		}
		b = s.bindings[h.Key]
		if b == nil || b.released == nil {
			break
		}
		s.mu.Unlock()
		select { // the relay is releasing the key; it must finish before it admits the key for us
		case <-b.released:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the relay: %w", ctx.Err())
		}
	}
	x.ctx, x.cancel = context.WithCancel(ctx)
	if b == nil {
		b = s.bind(h.Key, p.ID)
	}
	old = s.attach(x)
	s.mu.Unlock()

	s.release(old)
	s.admit(b)
	relays := s.opts.RelayMap() // after attach: later changes reach the session by RelayMapChanged
	s.mu.Lock()
	defer s.mu.Unlock()
	x.first = protocol.Encode(protocol.ServerMessage{Welcome: &protocol.Welcome{
		Version: x.version, ID: p.ID, Relays: relays, Servers: s.servers(),
		GraceSeconds: int(min(max(math.Ceil(s.opts.LostTimeout.Seconds()), 1), protocol.MaxGraceSeconds)),
	}})
	return x, nil
}

// attach makes x the session of its principal. It returns the binding of an earlier key, to be released. Called with mu
// held.
func (s *Server) attach(x *session) (old *binding) {
	id := x.principal.ID
	p := s.table.peer(id)
	stamp := p.stamp
	if p.session != nil {
		code := fault.Conflict
		if x.principal.Kind == protocol.KindAgent || p.key == x.key {
			// An agent that was briefly silent tries again. So does a process whose attempt that it had given up came
			// after the next one: keys are those of processes.
			code = fault.Unavailable
		}
		p.session.end(protocol.ErrorMessage{
			Code: code, Message: "a newer connection of the same participant has taken this one's place",
		}, websock.StatusPolicy)
	}
	if p.state != absent && p.key != x.key {
		old = s.remove(p)
		p = s.table.peer(id)
	}
	resumed := p.state != absent
	p.principal, p.state, p.key, p.session, p.since = x.principal, online, x.key, x, x.joined
	p.version, p.remote, p.stamp = x.version, nil, max(x.joined.UnixMicro(), stamp+1)
	delete(s.departed, id)
	s.publish(p)
	x.peer = p
	p.setPass(x.pass)
	s.byAddr.Store(tailnet.Addr(id), x.principal)
	if x.principal.Kind == protocol.KindServer {
		s.serverIDs[id] = struct{}{}
	}

	p.clearMarks()
	x.goodbyes = p.goodbyes.repeat()
	for partner, seen := range p.views {
		p.views[partner] = view{key: seen.key}
		p.mark(partner)
	}
	for partner, t := range p.tunnels {
		o := t.other(p)
		if o == t.initiator && !resumed && !o.mayInitiate(p) {
			s.drop(t)
			o.refuse(id, errUnseen())
			continue
		}
		if t.destination == p && !t.introduced() {
			t.state = pending // it may have missed the offer: step makes another
		}
		if *t.wantedBy(p) {
			s.publishWant(p, o)
		}
		s.step(t)
		s.punch(t)
		p.mark(partner)
	}
	s.sessions[x] = struct{}{}
	s.serving.Add(1)
	s.event(x.principal, true)
	return old
}

// bind ties a key to a participant. Called with mu held; the caller owes admit without it.
func (s *Server) bind(k tailnet.PublicKey, owner uuid.UUID) *binding {
	b := &binding{key: k, owner: owner, relay: make(chan struct{}, 1)}
	b.relay <- struct{}{}
	s.bindings[k] = b
	return b
}

// servers lists the participants of KindServer that are connected here. Called with mu held.
func (s *Server) servers() []uuid.UUID {
	ids := []uuid.UUID{}
	for id := range s.serverIDs {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// admit admits the key to the relay, unless its owner is gone by now.
func (s *Server) admit(b *binding) {
	if s.opts.Relay == nil {
		return
	}
	<-b.relay
	if !b.revoked {
		s.opts.Relay.Admit(b.key)
	}
	b.relay <- struct{}{}
}

// release frees the key of a binding that its owner gave up, once the relay has released it too. Nil is allowed.
func (s *Server) release(b *binding) {
	if b == nil {
		return
	}
	<-b.relay
	b.revoked = true
	if s.opts.Relay != nil {
		s.opts.Relay.Revoke(b.key)
	}
	b.relay <- struct{}{}
	s.mu.Lock()
	delete(s.bindings, b.key)
	close(b.released)
	s.mu.Unlock()
}

// expel removes a participant in any state.
func (s *Server) expel(id uuid.UUID, m protocol.ErrorMessage, forGood bool) bool {
	s.mu.Lock()
	s.authGen++
	if forGood {
		now := time.Now()
		s.tombstones[id] = now
		s.after(now.Add(tombstoneTime), func() *binding {
			if s.tombstones[id].Equal(now) {
				delete(s.tombstones, id)
			}
			return nil
		})
	}
	p := s.peers[id]
	if p == nil || p.state == absent || p.remote != nil && !forGood {
		s.mu.Unlock()
		return false
	}
	if p.session != nil {
		p.session.end(m, websock.StatusPolicy)
	}
	b := s.remove(p)
	if forGood {
		if d, ok := s.departed[id]; ok {
			d.reason = m
			s.departed[id] = d
		}
		s.abandon(p, m)
	}
	s.mu.Unlock()
	s.release(b)
	s.log.Info("mesh participant removed", "peer", id, "reason", m.Message)
	return true
}

// abandon ends the tunnels of a participant that was revoked: waiting for it is pointless now. Called with mu held.
func (s *Server) abandon(p *peer, m protocol.ErrorMessage) {
	for _, t := range p.tunnels {
		t.other(p).refuse(p.principal.ID, &fault.Error{Code: m.Code, Message: m.Message})
		s.drop(t)
	}
}

// errUnseen returns the refusal of a participant of a kind that the caller may never see.
func errUnseen() *fault.Error {
	return fault.New(fault.NotFound, "no such participant, or you may not see it")
}

// firstTargets returns the subscriptions of a hello: those it names, and for agents and provisioners the servers.
func (s *Server) firstTargets(x *session, h protocol.Hello) []uuid.UUID {
	ids := slices.Clone(h.Subscribe)
	if x.principal.Kind != protocol.KindAgent && x.principal.Kind != protocol.KindProvisioner {
		return ids
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.servers() {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// resolve returns the participant that a client's hello names.
func (s *Server) resolve(x *session, h protocol.Hello) (uuid.UUID, bool) {
	if h.Name == "" || s.opts.Resolve == nil || x.principal.Kind != protocol.KindClient ||
		x.version < protocol.VersionEarly {
		return uuid.Nil, false
	}
	ctx, cancel := context.WithTimeout(x.ctx, AuthorizeTimeout)
	defer cancel()
	id, err := s.opts.Resolve(ctx, x.principal, h.Name)
	if err != nil {
		s.log.Debug("cannot resolve name in hello", "peer", x.principal.ID, "err", err)
		return uuid.Nil, false
	}
	return id, id != uuid.Nil && id != x.principal.ID
}

// greetServer subscribes every agent and provisioner to a new server.
func (s *Server) greetServer(x *session) {
	s.mu.Lock()
	var workers []*session
	for w := range s.sessions {
		if w.principal.Kind == protocol.KindAgent || w.principal.Kind == protocol.KindProvisioner {
			workers = append(workers, w)
		}
	}
	s.mu.Unlock()
	for _, w := range workers {
		if err := s.subscribe(w, x.principal.ID, true); err != nil {
			s.log.Warn("cannot introduce participant to server", "peer", w.principal.ID, "err", err)
		}
		if x.ctx.Err() != nil {
			return
		}
	}
}
