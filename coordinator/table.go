package coordinator

import (
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/peering"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Server.mu guards everything in this file. Nothing here blocks or calls other packages' code.

type state int

const (
	absent state = iota // in the table only because others subscribed to it
	online
	lost // its connection ended without bye
)

// peer is a participant.
type peer struct {
	principal Principal // only the ID while absent
	state     state
	key       tailnet.PublicKey
	node      *announcement // nil until it has announced a home relay
	session   *session      // while online here
	remote    *remote       // nil: it is, or was last, connected here, or known from its agent only
	stamp     int64         // orders its connections to all servers; 0 while absent, or known from its agent only
	version   int           // of the protocol that it speaks
	since     time.Time     // of the connection, or of its loss
	lastSeen  time.Time     // while lost
	waiting   bool          // a timer for its removal is set
	contested time.Time     // when another process last tried to be this agent

	tunnels map[uuid.UUID]*tunnel // by partner
	wants   int                   // tunnels that it subscribed to

	pass        string // for clients: what agents remember of it
	passMessage []byte // the same as a message

	views      map[uuid.UUID]view // what its client has been sent, by partner
	goodbyes   goodbyes           // what its client may have missed
	dirty      map[uuid.UUID]struct{}
	dirtyOrder []uuid.UUID // dirty, oldest first
}

// announcement is a node's information, with the messages that carry it. Server.mu guards the messages.
type announcement struct {
	rev      uint64 // unique in the server's life
	info     tailnet.NodeInfo
	kind     protocol.Kind
	complete messages
	reduced  messages // without endpoints
}

// messages are the encodings of an announcement: plain, and as an offer that asks for ready.
type messages struct{ plain, ack []byte }

// view is what a client has been sent about a partner.
type view struct {
	key      tailnet.PublicKey
	rev      uint64 // 0: unconfirmed, so it must be sent again
	lost     bool
	withheld bool // without the endpoints
	pass     string
}

// goodbye is a gone message that was sent to a client. The connection may have been dead by then, so the next one
// repeats it.
type goodbye struct {
	message []byte
	said    time.Time
}

// goodbyes are those of the last goodbyeTime, by partner. A server's node says and hears thousands when other servers
// end.
type goodbyes struct {
	by    map[uuid.UUID]goodbye
	order []uuid.UUID // oldest first; some have returned since
}

// say adds a goodbye, and drops old ones.
func (g *goodbyes) say(id uuid.UUID, message []byte) {
	for ; len(g.order) > 0; g.order = g.order[1:] {
		first, ok := g.by[g.order[0]]
		if ok && time.Since(first.said) <= goodbyeTime {
			break
		}
		delete(g.by, g.order[0])
	}
	if g.by == nil {
		g.by = make(map[uuid.UUID]goodbye)
	}
	g.by[id] = goodbye{message, time.Now()}
	g.order = append(g.order, id)
}

// repeat returns the messages, which the client hears once more.
func (g *goodbyes) repeat() (messages [][]byte) {
	for id, said := range g.by {
		messages = append(messages, said.message)
		g.by[id] = goodbye{said.message, time.Now()}
	}
	return messages
}

// goodbyeTime is after how long a message on a connection that is still open must have arrived: unanswered pings would
// have ended it.
const goodbyeTime = 2 * time.Minute

// mayInitiate reports whether the rules for all deployments let p see to. An agent that does not know region proxies
// would let them open everything, or not understand the introduction.
func (p *peer) mayInitiate(to *peer) bool {
	return p.principal.Kind.MayInitiate(to.principal.Kind) &&
		(p.principal.Kind != protocol.KindProxy || to.version >= protocol.VersionProxies)
}

type tunnelState int

const (
	pending tunnelState = iota
	offered
	open
)

// tunnel joins two peers of which at least one has subscribed to the other. The package comment explains its states.
type tunnel struct {
	initiator, destination *peer
	initiatorWants         bool
	destinationWants       bool
	// The link on which another server announced the subscription, nil if none did.
	initiatorLink, destinationLink *peering.Link

	state    tunnelState
	asked    bool      // the destination was sent the offer
	deadline time.Time // of the offer
	waiting  bool      // a timer for the deadline is set
	punch    holePunch
}

func (t *tunnel) other(p *peer) *peer {
	if p == t.initiator {
		return t.destination
	}
	return t.initiator
}

func (t *tunnel) wantedBy(p *peer) *bool {
	if p == t.initiator {
		return &t.initiatorWants
	}
	return &t.destinationWants
}

func (t *tunnel) wantLink(p *peer) **peering.Link {
	if p == t.initiator {
		return &t.initiatorLink
	}
	return &t.destinationLink
}

// introduced reports whether the initiator has been sent the destination.
func (t *tunnel) introduced() bool {
	return t.initiator.views[t.destination.principal.ID].key == t.destination.key
}

// binding ties a key to one principal.
type binding struct {
	key   tailnet.PublicKey
	owner uuid.UUID
	relay chan struct{} // holds a token unless a call to the relay about this key is in progress
	// revoked is set by the holder of the token.
	revoked bool
	// released is closed when the key is free again. It is set when the owner gives the key up.
	released chan struct{}
}

// table is the state of a Server.
type table struct {
	peers      map[uuid.UUID]*peer
	bindings   map[tailnet.PublicKey]*binding
	tombstones map[uuid.UUID]time.Time // revocations
	serverIDs  map[uuid.UUID]struct{}  // participants of KindServer that are online
	tunnels    int
	rev        uint64
}

func newTable() table {
	return table{
		peers:      make(map[uuid.UUID]*peer),
		bindings:   make(map[tailnet.PublicKey]*binding),
		tombstones: make(map[uuid.UUID]time.Time),
		serverIDs:  make(map[uuid.UUID]struct{}),
	}
}

// peer returns the row of id. If there is none it adds an absent one.
func (tb *table) peer(id uuid.UUID) *peer {
	p := tb.peers[id]
	if p == nil {
		p = &peer{
			principal: Principal{ID: id},
			tunnels:   make(map[uuid.UUID]*tunnel),
			views:     make(map[uuid.UUID]view),
			dirty:     make(map[uuid.UUID]struct{}),
		}
		tb.peers[id] = p
	}
	return p
}

// mark makes p's session compare what it has sent about id with the table.
func (p *peer) mark(id uuid.UUID) {
	if p.session == nil {
		return // everything is compared when p returns
	}
	if _, ok := p.dirty[id]; !ok {
		p.dirty[id] = struct{}{}
		p.dirtyOrder = append(p.dirtyOrder, id)
	}
	p.session.wake.Poke()
}

func (p *peer) clearMarks() {
	clear(p.dirty)
	p.dirtyOrder = nil
}

// markPartners makes all partners' sessions compare what they have sent about p.
func (p *peer) markPartners() {
	for _, t := range p.tunnels {
		t.other(p).mark(p.principal.ID)
	}
}

// link subscribes p to another peer.
func (s *Server) link(p, to *peer) {
	id := to.principal.ID
	t := p.tunnels[id]
	if t == nil {
		t = &tunnel{initiator: p, destination: to}
		p.tunnels[id], to.tunnels[p.principal.ID] = t, t
		s.table.tunnels++
	}
	if want := t.wantedBy(p); !*want {
		*want = true
		p.wants++
		s.publishWant(p, to)
	}
	s.step(t)
}

// unlink ends p's subscription to its partner of t. The tunnel ends unless the partner wants it.
func (s *Server) unlink(p *peer, t *tunnel) {
	want, o := t.wantedBy(p), t.other(p)
	if !*want {
		return
	}
	*want = false
	p.wants--
	s.publishWant(p, o)
	if !*t.wantedBy(o) {
		s.drop(t)
	}
}

// drop ends a tunnel for both.
func (s *Server) drop(t *tunnel) {
	a, b := t.initiator, t.destination
	for _, p := range []*peer{a, b} {
		if want := t.wantedBy(p); *want {
			*want = false
			p.wants--
			s.publishWant(p, t.other(p))
		}
	}
	delete(a.tunnels, b.principal.ID)
	delete(b.tunnels, a.principal.ID)
	s.table.tunnels--
	t.state = pending
	a.mark(b.principal.ID)
	b.mark(a.principal.ID)
	s.forget(a)
	s.forget(b)
}

// forget drops the row of an absent peer without tunnels.
func (s *Server) forget(p *peer) {
	if p.state == absent && len(p.tunnels) == 0 {
		delete(s.peers, p.principal.ID)
	}
}

// step moves a tunnel from pending to open if possible, or to offered if the destination must be asked first. It marks
// both ends, the destination first.
func (s *Server) step(t *tunnel) {
	i, d := t.initiator, t.destination
	if t.state == pending && i.state == online && i.node != nil && d.state == online {
		if d.version >= protocol.VersionEarly {
			t.state = open
			s.punch(t)
		} else {
			t.state, t.asked = offered, false
			t.deadline = time.Now().Add(s.opts.ReadyTimeout)
			s.awaitReady(t)
		}
	}
	d.mark(i.principal.ID)
	i.mark(d.principal.ID)
}

// accepted moves a tunnel from offered to open.
func (s *Server) accepted(t *tunnel) {
	t.state = open
	t.initiator.mark(t.destination.principal.ID)
	if i := t.initiator; i.remote != nil && s.links[i.remote.server] != nil {
		s.links[i.remote.server].Ready(protocol.LinkPair{From: t.destination.principal.ID, To: i.principal.ID}, i.key)
	}
	s.punch(t)
}

// awaitReady sets the timer of an offer.
func (s *Server) awaitReady(t *tunnel) {
	if t.waiting {
		return // the timer looks at the deadline when it fires
	}
	t.waiting = true
	s.after(t.deadline, func() *binding {
		t.waiting = false
		switch {
		case t.state != offered:
		case time.Now().Before(t.deadline):
			s.awaitReady(t)
		default:
			s.counters.readyTimeouts.Add(1)
			s.accepted(t)
		}
		return nil
	})
}

// awaitReturn sets the timer that removes a lost peer.
func (s *Server) awaitReturn(p *peer) {
	if p.waiting {
		return
	}
	p.waiting = true
	s.after(p.since.Add(s.opts.LostTimeout), func() *binding {
		p.waiting = false
		switch {
		case p.state != lost:
			return nil
		case time.Now().Before(p.since.Add(s.opts.LostTimeout)):
			s.awaitReturn(p)
			return nil
		}
		return s.remove(p)
	})
}

// lose marks a peer as lost because its connection has ended.
func (s *Server) lose(p *peer) {
	delete(s.serverIDs, p.principal.ID)
	p.lastSeen = p.session.seen()
	p.state, p.session, p.since = lost, nil, time.Now()
	p.clearMarks()
	p.markPartners()
	s.awaitReturn(p)
	s.event(p.principal, false)
	s.publish(p)
}

// remove makes a peer absent. Tunnels that partners want become pending. The caller releases the binding without the
// lock.
func (s *Server) remove(p *peer) *binding {
	if p.session != nil {
		s.event(p.principal, false)
	}
	if p.ours() {
		s.depart(p)
	}
	delete(s.serverIDs, p.principal.ID)
	b := s.unbind(p)
	s.byAddr.Delete(tailnet.Addr(p.principal.ID))
	p.state, p.session, p.remote, p.stamp, p.node = absent, nil, nil, 0, nil
	p.clearMarks()
	clear(p.views)
	p.goodbyes = goodbyes{}
	for _, t := range p.tunnels {
		o := t.other(p)
		s.unlink(p, t)
		if p.tunnels[o.principal.ID] != t {
			continue // it ended
		}
		if o.remote != nil {
			s.drop(t) // its server keeps the subscription
			continue
		}
		if t.initiator == p {
			t.initiator, t.destination = o, p
			t.initiatorWants, t.destinationWants = true, false
			t.initiatorLink, t.destinationLink = nil, nil
		}
		t.state = pending
		t.callOff()
		o.mark(p.principal.ID)
	}
	s.forget(p)
	return b
}

// departure is the end of a participant.
type departure struct {
	at     time.Time
	reason protocol.ErrorMessage // of a revocation, zero for others
}

// depart makes the other servers learn that a participant of this one is gone, even those without a link now: they keep
// it until LostTimeout.
func (s *Server) depart(p *peer) {
	id, now := p.principal.ID, time.Now()
	s.publish(p)
	if s.opts.ID == uuid.Nil {
		return
	}
	s.departed[id] = departure{at: now}
	s.after(now.Add(s.opts.LostTimeout), func() *binding {
		if s.departed[id].at.Equal(now) {
			delete(s.departed, id)
		}
		return nil
	})
}

// unbind gives up p's key.
func (s *Server) unbind(p *peer) *binding {
	b := s.bindings[p.key]
	p.key = tailnet.PublicKey{}
	if b != nil && b.released == nil {
		b.released = make(chan struct{})
	}
	return b
}

// announce replaces p's announcement.
func (s *Server) announce(p *peer, a *announcement) {
	first := p.node == nil
	moved := !first && a.info.Moves != p.node.info.Moves
	s.rev++
	a.rev = s.rev
	p.node = a
	if p.remote == nil {
		s.publish(p)
	}
	for id, t := range p.tunnels {
		if moved {
			s.separate(p, t)
		}
		if first {
			s.step(t)
		} else {
			t.other(p).mark(p.principal.ID)
			p.mark(id) // it may be allowed to see more now
		}
		s.punch(t)
	}
}

// visible reports whether p may know its partner in t now.
func (p *peer) visible(t *tunnel) bool {
	o := t.other(p)
	if o.node == nil {
		return false
	}
	if p == t.destination {
		return t.state != pending
	}
	if t.state != open {
		return false
	}
	return o.state == online || p.views[o.principal.ID].key == o.key
}

// compare appends to out what p's client must learn about a partner, and counts it as sent.
func (p *peer) compare(id uuid.UUID, out [][]byte) [][]byte {
	t, seen := p.tunnels[id], p.views[id]
	var o *peer
	if t != nil {
		o = t.other(p)
	}
	if !seen.key.IsZero() && (o == nil || o.state == absent || o.key != seen.key) {
		gone := protocol.Encode(protocol.ServerMessage{Gone: &protocol.PeerGone{ID: id, Key: seen.key}})
		out = append(out, gone)
		p.goodbyes.say(id, gone)
		delete(p.views, id)
		seen = view{}
	}
	if t == nil || !p.visible(t) {
		return out
	}
	offer := p == t.destination && t.state == offered && !t.asked
	withheld := t.withholds(p)
	if offer || seen.rev != o.node.rev || (seen.lost && o.state == online) || seen.withheld && !withheld {
		out = append(out, o.node.message(withheld, offer))
		t.asked = t.asked || offer
		seen = view{key: o.key, rev: o.node.rev, withheld: withheld, pass: seen.pass}
		delete(p.goodbyes.by, id) // it is back
	}
	if o.pass != seen.pass && p.principal.Kind == protocol.KindAgent && p.session.version >= protocol.VersionPasses {
		out = append(out, o.passMessage)
		seen.pass = o.pass
	}
	if o.state == lost && !seen.lost {
		out = append(out, protocol.Encode(protocol.ServerMessage{Lost: &protocol.PeerRef{ID: id}}))
		seen.lost = true
	}
	p.views[id] = seen
	return out
}

// refuse notifies p that it may not see id.
func (p *peer) refuse(id uuid.UUID, err *fault.Error) {
	if p.session != nil {
		p.session.refuse(protocol.Refused{ID: id, Code: err.Code, Message: err.Error()})
	}
}
