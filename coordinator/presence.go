package coordinator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/peering"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// deployment is this server's table for its links to the other servers of the deployment.
type deployment struct{ s *Server }

// Collect implements peering.Table.
func (d deployment) Collect(l *peering.Link, out []protocol.LinkMessage) []protocol.LinkMessage {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.s.links[l.Server()] != l {
		return out
	}
	return l.Take(d, out)
}

// Participant implements peering.Reader. Called with mu held.
func (d deployment) Participant(id uuid.UUID) (protocol.LinkMessage, bool) {
	switch p := d.s.peers[id]; {
	case p == nil || p.state == absent:
		return d.s.gone(id), true
	case p.ours():
		return protocol.LinkMessage{Present: p.present()}, true
	}
	return protocol.LinkMessage{}, false
}

// Subscription implements peering.Reader. Called with mu held.
func (d deployment) Subscription(l *peering.Link, pair protocol.LinkPair) (protocol.LinkMessage, bool) {
	p := d.s.peers[pair.From]
	if p == nil || !p.ours() {
		return protocol.LinkMessage{}, false
	}
	t := p.tunnels[pair.To]
	switch {
	case t == nil || !*t.wantedBy(p):
		return protocol.LinkMessage{Unwant: &pair}, true
	case t.other(p).remote != nil && t.other(p).remote.server == l.Server():
		return protocol.LinkMessage{Want: &pair}, true
	}
	return protocol.LinkMessage{}, false
}

// Apply implements peering.Table.
func (d deployment) Apply(l *peering.Link, m protocol.LinkMessage) error {
	s := d.s
	switch {
	case m.Present != nil:
		return s.arrive(l, m.Present)
	case m.Gone != nil:
		s.release(s.departRemote(l, *m.Gone))
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links[l.Server()] != l {
		return errReplacedLink
	}
	switch {
	case m.Want != nil:
		s.want(l, *m.Want)
	case m.Unwant != nil:
		if p := s.peers[m.Unwant.From]; p != nil && p.remote != nil && p.remote.server == l.Server() {
			if t := p.tunnels[m.Unwant.To]; t != nil {
				s.unlink(p, t)
			}
		}
	case m.Ready != nil:
		if t := s.shared(l, m.Ready.LinkPair); t != nil && t.state == offered &&
			t.initiator.principal.ID == m.Ready.To && t.initiator.key == m.Ready.Key {
			s.accepted(t)
		}
	case m.Punch != nil:
		s.followPunch(l, *m.Punch)
	case m.Synced != nil:
		s.sweepWants(l)
	}
	return nil
}

// Process implements peering.Table.
func (d deployment) Process(id uuid.UUID, key tailnet.PublicKey) func(context.Context) bool {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	p := d.s.peers[id]
	if p == nil || p.key != key || p.session == nil {
		return func(context.Context) bool { return false }
	}
	x := p.session
	return func(ctx context.Context) bool {
		alive := answers(ctx, x)
		if alive {
			d.s.contested(id)
		}
		return alive
	}
}

var errReplacedLink = errors.New("another link has taken its place")

// departRemote removes a participant that has left another server. The caller releases the binding.
func (s *Server) departRemote(l *peering.Link, m protocol.LinkGone) *binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[m.ID]
	if s.links[l.Server()] != l || p == nil || p.remote == nil || p.remote.server != l.Server() {
		return nil
	}
	b := s.remove(p)
	if m.Code != "" {
		s.abandon(p, protocol.ErrorMessage{Code: m.Code, Message: m.Message})
	}
	return b
}

// arrive applies the announcement of a participant that is connected to another server. The server that attached the
// participant last owns it.
func (s *Server) arrive(l *peering.Link, m *protocol.Present) error {
	var b, old *binding
	for {
		s.mu.Lock()
		if s.links[l.Server()] != l {
			s.mu.Unlock()
			return errReplacedLink
		}
		if !s.newer(l, m) {
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
		case <-l.Done():
			return context.Canceled
		}
	}
	p := s.peers[m.ID]
	if b != nil && b.owner != m.ID {
		s.log.Warn("another server's participant has the key of one of this server's", "peer", m.ID, "server",
			l.Server())
		if p != nil && p.remote != nil && p.remote.server == l.Server() {
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
	s.place(l, s.table.peer(m.ID), m)
	s.mu.Unlock()
	s.release(old)
	s.admit(b)
	return nil
}

// principalOf returns the principal that another server announced.
func principalOf(p *protocol.Present) Principal {
	return Principal{
		Kind: p.Kind, ID: p.ID, Name: p.Name, Subject: p.Subject, Session: p.Session, Addr: p.Addr, Detail: p.Detail,
	}
}

// newer reports whether an announcement is not outdated by what this server knows. Called with mu held.
func (s *Server) newer(l *peering.Link, m *protocol.Present) bool {
	p := s.peers[m.ID]
	switch {
	case p == nil || p.state == absent || p.stamp < m.Stamp:
		return true
	case p.remote != nil && p.remote.server == l.Server():
		return true // a server knows its own participants best
	case p.remote != nil && s.links[p.remote.server] == nil:
		return true // the owner cannot tell that it has lost it; clocks may differ
	case p.stamp > m.Stamp:
		return false
	}
	owner := s.opts.ID
	if p.remote != nil {
		owner = p.remote.server
	}
	other := l.Server()
	return slices.Compare(owner[:], other[:]) < 0 // both servers decide alike
}

// takeOver ends the connection of a participant that has connected to another server.
func (s *Server) takeOver(p *peer) {
	delete(s.serverIDs, p.principal.ID)
	if p.session != nil {
		p.session.end(protocol.ErrorMessage{
			Code:    fault.Unavailable,
			Message: "a newer connection of the same participant, to another server, has taken this one's place",
		}, websock.StatusPolicy)
		s.event(p.principal, false)
	}
	p.session = nil
	p.clearMarks()
	clear(p.views)
	p.goodbyes = goodbyes{}
}

// place puts a participant of another server into the table. Called with mu held; the key is bound.
func (s *Server) place(l *peering.Link, p *peer, m *protocol.Present) {
	attached := p.state == absent || p.stamp != m.Stamp || p.remote == nil || p.remote.server != l.Server()
	if p.remote == nil && p.state != absent {
		s.takeOver(p)
	}
	p.principal, p.key, p.stamp, p.version = principalOf(m), m.Key, m.Stamp, m.Version
	p.remote = &remote{server: l.Server(), rtt: time.Duration(m.RTT) * time.Microsecond}
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
		s.reconnectRemote(p)
	}
	if was != p.state || attached {
		for _, t := range p.tunnels {
			s.step(t) // marks both ends
			s.punch(t)
		}
	}
	if m.Node != nil && (p.node == nil || p.node.info.Seq != m.Node.Seq) {
		s.announce(p, &announcement{info: *m.Node, kind: m.Kind})
	}
}

// reconnectRemote adjusts the tunnels of a participant that has connected to another server: that server must learn who
// wants it here. Tunnels without an end here are that server's, and so are subscriptions of workers to servers.
func (s *Server) reconnectRemote(p *peer) {
	worker := p.principal.Kind == protocol.KindAgent || p.principal.Kind == protocol.KindProvisioner
	for id, t := range p.tunnels {
		o := t.other(p)
		switch {
		case o.remote != nil || o.state == absent:
			s.drop(t)
		case *t.wantedBy(o) && !o.mayInitiate(p):
			s.drop(t)
			o.refuse(id, errUnseen())
		case worker && o.principal.Kind == protocol.KindServer:
			s.unlink(p, t)
		}
	}
	s.publishWants(p)
}

// want subscribes another server's participant to one of this server's. The other server has asked the Authorizer.
func (s *Server) want(l *peering.Link, pair protocol.LinkPair) {
	p, to := s.peers[pair.From], s.peers[pair.To]
	if p == nil || p.remote == nil || p.remote.server != l.Server() || to == nil || !to.ours() || !p.mayInitiate(to) {
		return // a later announcement makes the other server repeat it, if it still holds
	}
	s.link(p, to)
	*p.tunnels[pair.To].wantLink(p) = l
}

// sweepWants ends subscriptions that another server announced on an earlier link and has not repeated on this one.
func (s *Server) sweepWants(l *peering.Link) {
	for _, p := range s.peers {
		if p.remote == nil || p.remote.server != l.Server() {
			continue
		}
		for _, t := range p.tunnels {
			if old := *t.wantLink(p); *t.wantedBy(p) && old != nil && old != l && old.Server() == l.Server() {
				s.unlink(p, t)
			}
		}
	}
}

// shared returns the tunnel between a participant of another server and one of this server's, or nil.
func (s *Server) shared(l *peering.Link, pair protocol.LinkPair) *tunnel {
	p := s.peers[pair.From]
	if p == nil || p.remote == nil || p.remote.server != l.Server() {
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

// probe asks another server whether the process of an agent with a key answers. If the server cannot be asked, the
// process does not.
func (s *Server) probe(ctx context.Context, id uuid.UUID, duplicate remoteDuplicate) (bool, error) {
	s.mu.Lock()
	l := s.links[duplicate.server]
	s.mu.Unlock()
	if l == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*duplicateTime)
	defer cancel()
	return l.Probe(ctx, id, duplicate.key)
}
