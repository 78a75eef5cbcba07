package coordinator

import (
	"context"
	"net/netip"
	"time"

	"github.com/codermesh/codermesh/tailnet"
)

// Two nodes behind different NATs meet: once both know their endpoints, the server sends each the other's, to both at the same time,
// so that both have sent their first packets before either arrives. A packet that reaches a NAT before that side has sent one
// may spoil the direct path for good (docs/decisions/0016-meeting.md). Until then the nodes use the relay.
// Server.mu guards everything below but newAnnouncement and measure.

// meeting records how far the ends of a tunnel are with meeting.
type meeting struct {
	arranged                             bool
	initiatorInvited, destinationInvited bool // it may learn the other's endpoints
}

func (t *tunnel) invited(p *peer) *bool {
	if p == t.initiator {
		return &t.meeting.initiatorInvited
	}
	return &t.meeting.destinationInvited
}

// newAnnouncement encodes the messages for partners.
func newAnnouncement(info tailnet.NodeInfo, kind Kind) *announcement {
	a := &announcement{region: info.Region, moves: info.Moves, mapped: info.Mapped, measured: info.Measured}
	say := func() messages {
		return messages{
			plain: encode(ServerMessage{Peer: &PeerUpdate{Info: info, Kind: kind}}),
			ack:   encode(ServerMessage{Peer: &PeerUpdate{Info: info, Kind: kind, Ack: true}}),
		}
	}
	a.complete = say()
	if a.reduced = a.complete; !a.open() {
		info.Endpoints, info.Mapped = nil, netip.AddrPort{}
		a.reduced = say()
	}
	return a
}

// open reports whether the node is not behind a NAT, or cannot find out because no STUN server answers. A nil announcement is not open.
func (a *announcement) open() bool { return a != nil && a.measured && !a.mapped.IsValid() }

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
	case a == nil || b == nil || !a.measured || !b.measured:
		return true
	}
	return a.mapped.Addr() != b.mapped.Addr()
}

// meet invites both ends of a tunnel as soon as they can meet, the more distant one first.
func (s *Server) meet(t *tunnel) {
	i, d := t.initiator, t.destination
	if t.meeting.arranged || t.state != open || i.state != online || d.state != online || i.node == nil || d.node == nil ||
		!i.node.measured || !d.node.measured || !t.separated() {
		return
	}
	t.meeting.arranged = true
	first, second := i, d
	if d.session.rtt > i.session.rtt {
		first, second = d, i
	}
	invite := func(p *peer) {
		*t.invited(p) = true
		p.mark(t.other(p).principal.ID)
	}
	invite(first)
	lead := (first.session.rtt - second.session.rtt) / 2
	if lead == 0 {
		invite(second)
		return
	}
	s.after(time.Now().Add(lead), func() *binding {
		if *t.invited(first) { // the meeting was not called off
			invite(second)
		}
		return nil
	})
}

// separate ends the meeting of a node that has moved. The node has forgotten the endpoints of a partner behind a NAT.
func (s *Server) separate(p *peer, t *tunnel) {
	t.meeting = meeting{}
	o := t.other(p)
	if seen, ok := p.views[o.principal.ID]; ok && o.node != nil && o.node.mapped.IsValid() {
		seen.withheld = true
		p.views[o.principal.ID] = seen
	}
}

// probes is how many round trips measure takes. The shortest counts, since a node that has just started is busy.
const probes = 3

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
}
