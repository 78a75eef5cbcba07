package coordinator

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator/peering"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Two nodes behind different NATs reach each other by UDP hole punching: once both know their endpoints, the server
// sends each the other's, to both at the same time, so that both have sent their first packets before either arrives. A
// packet that reaches a NAT before that side has sent one may spoil the direct path for good
// (docs/decisions/0016-hole-punching.md). Until then the nodes use the relay. Server.mu guards everything below but
// newAnnouncement and measure.

// holePunch records how far the ends of a tunnel are with hole punching.
type holePunch struct {
	arranged                             bool
	initiatorInvited, destinationInvited bool // it may learn the other's endpoints
	round                                uint // counts the attempts, so that the timer of an earlier one does nothing
}

func (t *tunnel) invited(p *peer) *bool {
	if p == t.initiator {
		return &t.punch.initiatorInvited
	}
	return &t.punch.destinationInvited
}

// newAnnouncement encodes the messages for partners.
func newAnnouncement(info tailnet.NodeInfo, kind protocol.Kind) *announcement {
	a := &announcement{info: info, kind: kind}
	a.message(false, false)
	a.message(true, false)
	return a
}

// message returns the message that carries the announcement, with or without the endpoints, plain or as an offer that
// asks for ready. It encodes each on first use: most participants of other servers have no partner here, and only
// partners of earlier versions get offers.
func (a *announcement) message(withheld, ack bool) []byte {
	ms, info := &a.complete, a.info
	if withheld && !a.open() {
		ms = &a.reduced
		info.Endpoints, info.Mapped = nil, netip.AddrPort{}
	}
	m := &ms.plain
	if ack {
		m = &ms.ack
	}
	if *m == nil {
		*m = protocol.Encode(protocol.ServerMessage{Peer: &protocol.PeerUpdate{Info: info, Kind: a.kind, Ack: ack}})
	}
	return *m
}

// open reports whether the node is not behind a NAT, or cannot find out because no STUN server answers. A nil
// announcement is not open.
func (a *announcement) open() bool { return a != nil && a.info.Measured && !a.info.Mapped.IsValid() }

// withholds reports whether p must not learn its partner's endpoints yet.
func (t *tunnel) withholds(p *peer) bool {
	return !*t.invited(p) && t.separated()
}

// separated reports whether both ends may be behind NATs, and not behind the same.
func (t *tunnel) separated() bool {
	a, b := t.initiator.node, t.destination.node
	switch {
	case a.open() || b.open():
		return false
	case a == nil || b == nil || !a.info.Measured || !b.info.Measured:
		return true
	}
	return a.info.Mapped.Addr() != b.info.Mapped.Addr()
}

// punch invites both ends of a tunnel as soon as both have measured their networks, the more distant one first.
func (s *Server) punch(t *tunnel) {
	i, d := t.initiator, t.destination
	if t.punch.arranged || t.state != open || i.state != online || d.state != online || i.node == nil ||
		d.node == nil ||
		!i.node.info.Measured || !d.node.info.Measured || !t.separated() {
		return
	}
	if i.remote != nil || d.remote != nil {
		s.punchAcross(t)
		return
	}
	t.punch.arranged = true
	first, second := i, d
	if d.rtt() > i.rtt() {
		first, second = d, i
	}
	t.invite(first)
	s.inviteLater(t, second, (first.rtt()-second.rtt())/2)
}

// invite lets p learn its partner's endpoints.
func (t *tunnel) invite(p *peer) {
	*t.invited(p) = true
	p.mark(t.other(p).principal.ID)
}

// inviteLater invites p after a delay, unless the attempt was called off.
func (s *Server) inviteLater(t *tunnel, p *peer, delay time.Duration) {
	if delay <= 0 {
		t.invite(p)
		return
	}
	t.punch.round++
	round := t.punch.round
	s.after(time.Now().Add(delay), func() *binding {
		if t.punch.arranged && t.punch.round == round {
			t.invite(p)
		}
		return nil
	})
}

// punchAcross invites participants of two servers. The server of the one with the smaller id does so: it sends its
// arrangement to the other server, and delays whichever message would arrive first.
func (s *Server) punchAcross(t *tunnel) {
	own, other := t.initiator, t.destination
	if own.remote != nil {
		own, other = other, own
	}
	if own.remote != nil || other.remote == nil || slices.Compare(own.principal.ID[:], other.principal.ID[:]) > 0 {
		return
	}
	l := s.links[other.remote.server]
	if l == nil {
		return
	}
	t.punch.arranged = true
	lead := (l.RTT() + other.rtt() - own.rtt()) / 2 // how much earlier a message reaches our own
	m := protocol.LinkPunch{
		LinkPair: protocol.LinkPair{From: own.principal.ID, To: other.principal.ID}, FromMoves: own.node.info.Moves,
		ToMoves: other.node.info.Moves,
		Delay:   min(max(-lead, 0), protocol.MaxLinkDelay).Microseconds(),
	}
	l.Punch(m)
	s.inviteLater(t, own, lead)
}

// followPunch follows another server's arrangement, unless one of the nodes has moved since.
func (s *Server) followPunch(l *peering.Link, m protocol.LinkPunch) {
	t := s.shared(l, m.LinkPair)
	if t == nil {
		return
	}
	from, to := s.peers[m.From], s.peers[m.To]
	if from.node == nil || to.node == nil || from.node.info.Moves != m.FromMoves || to.node.info.Moves != m.ToMoves {
		return
	}
	t.punch.arranged = true
	s.inviteLater(t, to, time.Duration(m.Delay)*time.Microsecond)
}

// callOff forgets the attempt.
func (t *tunnel) callOff() { t.punch = holePunch{round: t.punch.round + 1} }

// separate ends the attempt of a node that has moved. The node has forgotten the endpoints of a partner behind a NAT.
func (s *Server) separate(p *peer, t *tunnel) {
	t.callOff()
	o := t.other(p)
	if seen, ok := p.views[o.principal.ID]; ok && o.node != nil && o.node.info.Mapped.IsValid() {
		seen.withheld = true
		p.views[o.principal.ID] = seen
	}
}

// probes is how many round trips measure takes. The shortest counts, since a node that has just started is busy.
const probes = 3

// worthTelling is the shortest round trip that other servers learn about at once. They learn of a shorter one with the
// next change.
const worthTelling = 5 * time.Millisecond

// measure measures the round trip to a session's participant.
func (s *Server) measure(x *session) {
	conn, ok := x.conn.(interface{ Ping(context.Context) error })
	for range probes {
		if !ok || x.ctx.Err() != nil {
			return
		}
		begin := time.Now()
		if conn.Ping(x.ctx) != nil {
			return // the reader returns the reason
		}
		rtt := time.Since(begin)
		s.mu.Lock()
		if x.rtt == 0 || rtt < x.rtt {
			x.rtt = rtt
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.peer.session == x && x.rtt >= worthTelling {
		s.publish(x.peer)
	}
}
