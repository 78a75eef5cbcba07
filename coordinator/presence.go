package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// readReplica applies what another server sends, until the link ends. It returns the reason. Probes run on own.
func (s *Server) readReplica(r *replica, own *sync.WaitGroup) error {
	for {
		data, err := r.conn.Read(r.ctx)
		if err != nil {
			return err
		}
		r.received.Add(1)
		m, err := protocol.DecodeLinkMessage(data)
		if err == nil {
			err = s.handleReplica(r, m, own)
		}
		if err != nil {
			return err
		}
	}
}

func (s *Server) handleReplica(r *replica, m protocol.LinkMessage, own *sync.WaitGroup) error {
	switch {
	case m.Present != nil:
		return s.arrive(r, m.Present)
	case m.Gone != nil:
		s.release(s.departFar(r, *m.Gone))
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replicas[r.id] != r {
		return errReplacedLink
	}
	switch {
	case m.Hello != nil:
		return errors.New("a second hello")
	case m.Want != nil:
		s.want(r, *m.Want)
	case m.Unwant != nil:
		if p := s.peers[m.Unwant.From]; p != nil && p.far != nil && p.far.server == r.id {
			if t := p.tunnels[m.Unwant.To]; t != nil {
				s.unlink(p, t)
			}
		}
	case m.Ready != nil:
		if t := s.shared(r, m.Ready.LinkPair); t != nil && t.state == offered && t.initiator.principal.ID == m.Ready.To && t.initiator.key == m.Ready.Key {
			s.accepted(t)
		}
	case m.Meet != nil:
		s.followMeeting(r, *m.Meet)
	case m.Probe != nil:
		return s.answerProbe(r, *m.Probe, own)
	case m.Probed != nil:
		if c := r.asked[m.Probed.N]; c != nil {
			delete(r.asked, m.Probed.N)
			c <- m.Probed.Answers // its capacity is 1
		}
	case m.Synced != nil:
		s.sweepWants(r)
	}
	return nil
}

var errReplacedLink = errors.New("another link has taken its place")

// departFar removes a participant that has left another server. The caller releases the binding.
func (s *Server) departFar(r *replica, m protocol.LinkGone) *binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[m.ID]
	if s.replicas[r.id] != r || p == nil || p.far == nil || p.far.server != r.id {
		return nil
	}
	b := s.remove(p)
	if m.Code != "" {
		s.abandon(p, protocol.ErrorMessage{Code: m.Code, Message: m.Message})
	}
	return b
}

// arrive applies the announcement of a participant that is connected to another server. The server that attached the participant last owns it.
func (s *Server) arrive(r *replica, m *protocol.Present) error {
	var b, old *binding
	for {
		s.mu.Lock()
		if s.replicas[r.id] != r {
			s.mu.Unlock()
			return errReplacedLink
		}
		if !s.newer(r, m) {
			s.mu.Unlock()
			return nil
		}
		b = s.bindings[m.Key]
		if b == nil || b.released == nil {
			break
		}
		s.mu.Unlock()
		select { // the relay is releasing the key; it must finish before it admits the key again
		case <-b.released:
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
	p := s.peers[m.ID]
	if b != nil && b.owner != m.ID {
		s.log.Warn("another server's participant has the key of one of this server's", "peer", m.ID, "server", r.id)
		if p != nil && p.far != nil && p.far.server == r.id {
			old = s.remove(p) // its own key is no longer valid
		}
		s.mu.Unlock()
		s.release(old)
		return nil
	}
	if p != nil && p.state != absent && (p.key != m.Key || !p.principal.same(principalOf(m))) {
		s.takeOver(p)
		old = s.remove(p)
	}
	if b == nil {
		b = s.bind(m.Key, m.ID)
	}
	s.place(r, s.table.peer(m.ID), m)
	s.mu.Unlock()
	s.release(old)
	s.admit(b)
	return nil
}

// principalOf returns the principal that another server announced.
func principalOf(p *protocol.Present) Principal {
	return Principal{Kind: p.Kind, ID: p.ID, Name: p.Name, Subject: p.Subject, Session: p.Session, Addr: p.Addr, Detail: p.Detail}
}

// newer reports whether an announcement is not outdated by what this server knows. Called with mu held.
func (s *Server) newer(r *replica, m *protocol.Present) bool {
	p := s.peers[m.ID]
	switch {
	case p == nil || p.state == absent || p.stamp < m.Stamp:
		return true
	case p.far != nil && p.far.server == r.id:
		return true // a server knows its own participants best
	case p.far != nil && s.replicas[p.far.server] == nil:
		return true // the owner cannot tell that it has lost it; clocks may differ
	case p.stamp > m.Stamp:
		return false
	}
	owner := s.opts.ID
	if p.far != nil {
		owner = p.far.server
	}
	return slices.Compare(owner[:], r.id[:]) < 0 // both servers decide alike
}

// takeOver ends the connection of a participant that has connected to another server.
func (s *Server) takeOver(p *peer) {
	delete(s.serverIDs, p.principal.ID)
	if p.session != nil {
		p.session.end(protocol.ErrorMessage{Code: fault.Unavailable, Message: "a newer connection of the same participant, to another server, has taken this one's place"}, websock.StatusPolicy)
		s.event(p.principal, false)
	}
	p.session = nil
	p.clearMarks()
	clear(p.views)
	p.goodbyes = goodbyes{}
}

// place puts a participant of another server into the table. Called with mu held; the key is bound.
func (s *Server) place(r *replica, p *peer, m *protocol.Present) {
	attached := p.state == absent || p.stamp != m.Stamp || p.far == nil || p.far.server != r.id
	if p.far == nil && p.state != absent {
		s.takeOver(p)
	}
	p.principal, p.key, p.stamp, p.version = principalOf(m), m.Key, m.Stamp, m.Version
	p.far = &far{server: r.id, rtt: time.Duration(m.RTT) * time.Microsecond}
	if p.pass != m.Pass {
		p.setPass(m.Pass)
	}
	s.byAddr.Store(tailnet.Addr(m.ID), p.principal)
	was := p.state
	if p.state = online; m.Lost {
		p.state = lost
	}
	p.lastSeen = time.Now()
	switch {
	case p.state == online:
		p.since = m.Since
	case was != lost || attached: // it may have returned, and been lost again, while this server had no link to that one
		p.since = time.Now()
		s.awaitReturn(p)
	}
	if attached {
		s.reconnectFar(p)
	}
	if was != p.state || attached {
		for _, t := range p.tunnels {
			s.step(t) // marks both ends
			s.meet(t)
		}
	}
	if m.Node != nil && (p.node == nil || p.node.info.Seq != m.Node.Seq) {
		s.announce(p, &announcement{info: *m.Node, kind: m.Kind})
	}
}

// reconnectFar adjusts the tunnels of a participant that has connected to another server: that server must learn who wants it here. Tunnels
// without an end here are that server's, and so are subscriptions of workers to servers.
func (s *Server) reconnectFar(p *peer) {
	worker := p.principal.Kind == protocol.KindAgent || p.principal.Kind == protocol.KindProvisioner
	for id, t := range p.tunnels {
		o := t.other(p)
		switch {
		case o.far != nil || o.state == absent:
			s.drop(t)
		case *t.wantedBy(o) && !o.mayInitiate(p):
			s.drop(t)
			o.refuse(id, errUnseen())
		case worker && o.principal.Kind == protocol.KindServer:
			s.unlink(p, t)
		}
	}
	s.tellWants(p)
}

// want subscribes another server's participant to one of this server's. The other server has asked the Authorizer.
func (s *Server) want(r *replica, pair protocol.LinkPair) {
	p, to := s.peers[pair.From], s.peers[pair.To]
	if p == nil || p.far == nil || p.far.server != r.id || to == nil || !to.ours() || !p.mayInitiate(to) {
		return // a later announcement makes the other server repeat it, if it still holds
	}
	s.link(p, to)
	*p.tunnels[pair.To].toldBy(p) = r
}

// sweepWants ends subscriptions that another server told on an earlier link and has not repeated on this one.
func (s *Server) sweepWants(r *replica) {
	for _, p := range s.peers {
		if p.far == nil || p.far.server != r.id {
			continue
		}
		for _, t := range p.tunnels {
			if told := *t.toldBy(p); *t.wantedBy(p) && told != nil && told != r && told.id == r.id {
				s.unlink(p, t)
			}
		}
	}
}

// shared returns the tunnel between a participant of another server and one of this server's, or nil.
func (s *Server) shared(r *replica, pair protocol.LinkPair) *tunnel {
	p := s.peers[pair.From]
	if p == nil || p.far == nil || p.far.server != r.id {
		return nil
	}
	t := p.tunnels[pair.To]
	if t == nil || !t.other(p).ours() {
		return nil
	}
	return t
}

// remoteDuplicate is a connection of an agent to another server.
type remoteDuplicate struct {
	server uuid.UUID
	key    tailnet.PublicKey
}

// probe asks another server whether the process of an agent with a key answers. If the server cannot be asked, the process does not.
func (s *Server) probe(ctx context.Context, id uuid.UUID, duplicate remoteDuplicate) (bool, error) {
	s.mu.Lock()
	r := s.replicas[duplicate.server]
	if r == nil {
		s.mu.Unlock()
		return false, nil
	}
	if len(r.asked) >= protocol.MaxProbes {
		s.mu.Unlock()
		return false, fault.New(fault.Unavailable, "too many agents are connecting again")
	}
	s.probes++
	n, answer := s.probes, make(chan bool, 1)
	r.asked[n] = answer
	r.probes.put(n, protocol.LinkProbe{N: n, ID: id, Key: duplicate.key})
	r.wake.Poke()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*duplicateTime)
	defer cancel()
	select {
	case alive := <-answer:
		return alive, nil
	case <-ctx.Done():
		s.mu.Lock()
		delete(r.asked, n)
		s.mu.Unlock()
		return false, nil
	}
}

// answerProbe answers another server's probe on own.
func (s *Server) answerProbe(r *replica, m protocol.LinkProbe, own *sync.WaitGroup) error {
	if r.probing >= 2*protocol.MaxProbes {
		return fmt.Errorf("more than %d probes at once", 2*protocol.MaxProbes)
	}
	r.probing++
	var x *session
	if p := s.peers[m.ID]; p != nil && p.key == m.Key {
		x = p.session
	}
	own.Go(func() {
		alive := x != nil && answers(r.ctx, x)
		if alive {
			s.contested(m.ID)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		r.probing--
		r.probed.put(m.N, alive)
		r.wake.Poke()
	})
	return nil
}
