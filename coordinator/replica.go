package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// replica is the link to another server of the deployment. It has no queue of messages: it holds what the other server must learn about,
// and collect reads the table when the connection has room. The fields below the heading are guarded by Server.mu.
type replica struct {
	id     uuid.UUID
	conn   protocol.Conn
	wake   notify.Wake // for the writer
	ctx    context.Context
	cancel context.CancelFunc
	since  time.Time
	// version is that of the link protocol.
	version int

	sent, received atomic.Uint64 // messages

	// Guarded by Server.mu.
	rtt      time.Duration // the shortest; 0 while unknown
	latest   time.Duration // round trip; 0 while unknown
	changed  queue[uuid.UUID, struct{}]
	departed queue[uuid.UUID, struct{}]         // gone before this link began
	pairs    queue[protocol.LinkPair, struct{}] // subscriptions of our participants to theirs that have begun or ended
	ready    queue[protocol.LinkPair, tailnet.PublicKey]
	meet     queue[protocol.LinkPair, protocol.LinkMeet]
	probes   queue[uint64, protocol.LinkProbe]
	probed   queue[uint64, bool]
	asked    map[uint64]chan bool // probes in progress, by number
	probing  int                  // probes of the other server in progress here
	synced   bool                 // the beginning was sent
}

// queue holds what is to be sent about keys, oldest first, at most once each.
type queue[K comparable, V any] struct {
	set   map[K]V
	order []K
}

func (q *queue[K, V]) put(k K, v V) {
	if q.set == nil {
		q.set = make(map[K]V)
	}
	if _, ok := q.set[k]; !ok {
		q.order = append(q.order, k)
	}
	q.set[k] = v
}

// take removes up to n entries and passes them to use.
func (q *queue[K, V]) take(n int, use func(K, V)) {
	n = min(n, len(q.order))
	for _, k := range q.order[:n] {
		v := q.set[k]
		delete(q.set, k)
		use(k, v)
	}
	if q.order = q.order[n:]; len(q.order) == 0 {
		q.order = nil
	}
}

// far describes a participant that is connected to another server.
type far struct {
	server uuid.UUID
	rtt    time.Duration // between the two
}

// Replicas returns the ids of the servers to which there is a link, sorted.
func (s *Server) Replicas() []uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]uuid.UUID, 0, len(s.replicas))
	for id := range s.replicas {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// Linked reports whether there is a link to a server.
func (s *Server) Linked(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replicas[id] != nil
}

// LinkInfo describes a link to another server, for lists.
type LinkInfo struct {
	Server uuid.UUID
	Since  time.Time
	// RTT is the latest round trip, measured every 15 seconds; 0 while unknown.
	RTT            time.Duration
	Sent, Received uint64 // messages, without the hellos
}

// Links returns the links to other servers, sorted by server.
func (s *Server) Links() []LinkInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	links := make([]LinkInfo, 0, len(s.replicas))
	for id, r := range s.replicas {
		links = append(links, LinkInfo{Server: id, Since: r.since, RTT: r.latest, Sent: r.sent.Load(), Received: r.received.Load()})
	}
	slices.SortFunc(links, func(a, b LinkInfo) int { return slices.Compare(a.Server[:], b.Server[:]) })
	return links
}

// Link serves the link to the server with the given id until it or ctx ends, and closes conn. The caller has authenticated both ends. A
// later link to the same server takes the place of an earlier one. Link returns why the link ended.
func (s *Server) Link(ctx context.Context, id uuid.UUID, conn protocol.Conn) error {
	defer conn.Close(websock.StatusNormal, "")
	if id == uuid.Nil || id == s.opts.ID {
		return fmt.Errorf("link to server %s: it is this one", id)
	}
	version, err := greetReplica(ctx, conn)
	if err != nil {
		return fmt.Errorf("link to server %s: %w", id, err)
	}
	r := &replica{id: id, conn: conn, wake: notify.NewWake(), since: time.Now(), version: version, asked: make(map[uint64]chan bool)}
	r.ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	if err := s.attachReplica(r); err != nil {
		return err
	}
	defer s.serving.Done()
	defer context.AfterFunc(s.ctx, r.cancel)()
	s.log.Info("linked to another server", "server", id)

	var own sync.WaitGroup
	own.Go(func() { s.writeReplica(r) })
	own.Go(func() { s.measureReplica(r) })
	err = s.readReplica(r, &own)
	r.cancel()
	conn.Close(websock.StatusNormal, "")
	orphans := s.detachReplica(r)
	own.Wait()
	s.log.Info("link to another server ended", "server", id, "err", err)
	s.recheckOrphans(orphans)
	return fmt.Errorf("link to server %s: %w", id, err)
}

// greetReplica exchanges the hellos. It returns the version that both servers speak.
func greetReplica(ctx context.Context, conn protocol.Conn) (version int, _ error) {
	ctx, cancel := context.WithTimeout(ctx, protocol.DialTimeout)
	defer cancel()
	if err := conn.Write(ctx, protocol.Encode(protocol.LinkMessage{Hello: &protocol.LinkHello{Version: protocol.LinkVersion}})); err != nil {
		return 0, fmt.Errorf("send hello: %w", err)
	}
	data, err := conn.Read(ctx)
	if err != nil {
		return 0, fmt.Errorf("wait for hello: %w", err)
	}
	m, err := protocol.DecodeLinkMessage(data)
	switch {
	case err != nil:
		return 0, err
	case m.Hello == nil:
		return 0, errors.New("the first message is not a hello")
	case m.Hello.Version < protocol.MinLinkVersion:
		return 0, fmt.Errorf("the other server speaks version %d of the link protocol, this one needs %d or newer", m.Hello.Version, protocol.MinLinkVersion)
	}
	return min(m.Hello.Version, protocol.LinkVersion), nil
}

// attachReplica begins a link: everything here is to be sent. On success the caller owes serving.Done.
func (s *Server) attachReplica(r *replica) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fault.New(fault.Unavailable, "the server is stopping")
	}
	if old := s.replicas[r.id]; old != nil {
		old.cancel()
		s.loseReplica(old)
	}
	s.replicas[r.id] = r
	for id := range s.departed {
		r.departed.put(id, struct{}{})
	}
	for id, p := range s.peers {
		if p.far != nil && p.far.server == r.id {
			s.tellWants(p)
		}
		if p.ours() {
			r.changed.put(id, struct{}{})
		}
	}
	r.wake.Poke()
	s.serving.Add(1)
	return nil
}

// detachReplica ends a link. It returns the clients and proxies whose subscriptions only that server could authorize.
func (s *Server) detachReplica(r *replica) (orphans []uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replicas[r.id] != r {
		return nil
	}
	s.loseReplica(r)
	if s.closed {
		return nil
	}
	for id, p := range s.peers {
		if p.far != nil && p.far.server == r.id && p.wants > 0 && (p.principal.Kind == protocol.KindClient || p.principal.Kind == protocol.KindProxy) {
			orphans = append(orphans, id)
		}
	}
	return orphans
}

// loseReplica marks the participants of a server as lost because the link to it has ended. Called with mu held.
func (s *Server) loseReplica(r *replica) {
	delete(s.replicas, r.id)
	for _, c := range r.asked {
		close(c)
	}
	clear(r.asked)
	if s.closed {
		return
	}
	for _, p := range s.peers {
		if p.far != nil && p.far.server == r.id && p.state == online {
			p.state, p.since, p.lastSeen = lost, time.Now(), time.Now()
			p.markPartners()
			s.awaitReturn(p)
		}
	}
}

// recheckOrphans asks the Authorizer about subscriptions for which a server vouched that is gone now: it may have ended before it learned
// of a revocation that came here before the subscription did.
func (s *Server) recheckOrphans(ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		err := s.Recheck(s.ctx, ids...)
		if err == nil || s.ctx.Err() != nil {
			return
		}
		s.log.Warn("clients of a lost server not checked, trying again", "err", err)
		if retry.Wait(s.ctx) != nil {
			return
		}
	}
}

// writeReplica sends what collectReplica returns, until the link ends. It closes the connection when it cannot send.
func (s *Server) writeReplica(r *replica) {
	var out []protocol.LinkMessage
	for {
		out = s.collectReplica(r, out[:0])
		for i := range out {
			if p := out[i].Present; p != nil {
				if err := p.Check(); err != nil { // it must not cost the link
					s.log.Error("cannot announce participant to other server", "peer", p.ID, "err", err)
					continue
				}
			}
			ctx, cancel := context.WithTimeout(r.ctx, protocol.WriteTimeout)
			err := r.conn.Write(ctx, protocol.Encode(out[i]))
			cancel()
			if err != nil {
				r.cancel()
				return
			}
			r.sent.Add(1)
		}
		if len(out) > 0 {
			continue
		}
		select {
		case <-r.wake:
		case <-r.ctx.Done():
			return
		}
	}
}

// collectReplica appends to out the next messages for another server. Messages about a pair of participants follow those that announce
// the participant, and meetings follow the subscription.
func (s *Server) collectReplica(r *replica, out []protocol.LinkMessage) []protocol.LinkMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replicas[r.id] != r {
		return out
	}
	r.departed.take(batch, func(id uuid.UUID, _ struct{}) {
		if p := s.peers[id]; p == nil || p.state == absent {
			out = append(out, s.gone(id))
		}
	})
	r.changed.take(batch, func(id uuid.UUID, _ struct{}) {
		switch p := s.peers[id]; {
		case p == nil || p.state == absent:
			out = append(out, s.gone(id))
		case p.principal.Kind == protocol.KindProxy && r.version < protocol.LinkVersionProxies: // that server knows no such kind
		case p.ours():
			out = append(out, protocol.LinkMessage{Present: p.present()})
		}
	})
	r.probes.take(batch, func(_ uint64, m protocol.LinkProbe) { out = append(out, protocol.LinkMessage{Probe: &m}) })
	r.probed.take(batch, func(n uint64, answers bool) {
		out = append(out, protocol.LinkMessage{Probed: &protocol.LinkProbed{N: n, Answers: answers}})
	})
	if len(out) > 0 {
		return out
	}
	r.pairs.take(batch, func(pair protocol.LinkPair, _ struct{}) {
		p := s.peers[pair.From]
		if p == nil || !p.ours() {
			return
		}
		t := p.tunnels[pair.To]
		switch {
		case t == nil || !*t.wantedBy(p):
			out = append(out, protocol.LinkMessage{Unwant: &pair})
		case t.other(p).far != nil && t.other(p).far.server == r.id:
			out = append(out, protocol.LinkMessage{Want: &pair})
		}
	})
	if len(out) > 0 {
		return out
	}
	r.ready.take(batch, func(pair protocol.LinkPair, k tailnet.PublicKey) {
		out = append(out, protocol.LinkMessage{Ready: &protocol.LinkReady{LinkPair: pair, Key: k}})
	})
	r.meet.take(batch, func(_ protocol.LinkPair, m protocol.LinkMeet) { out = append(out, protocol.LinkMessage{Meet: &m}) })
	if len(out) == 0 && !r.synced {
		r.synced = true
		out = append(out, protocol.LinkMessage{Synced: &protocol.Synced{}})
	}
	return out
}

// gone returns what other servers learn about a participant that is gone.
func (s *Server) gone(id uuid.UUID) protocol.LinkMessage {
	why := s.departed[id].reason
	return protocol.LinkMessage{Gone: &protocol.LinkGone{ID: id, Code: why.Code, Message: why.Message[:min(len(why.Message), protocol.MaxLinkText)]}}
}

// present returns what other servers learn about p.
func (p *peer) present() *protocol.Present {
	m := &protocol.Present{
		ID: p.principal.ID, Kind: p.principal.Kind, Name: p.principal.Name, Subject: p.principal.Subject, Session: p.principal.Session,
		Addr: p.principal.Addr, Detail: p.principal.Detail,
		Key: p.key, Stamp: p.stamp, Lost: p.state == lost, Version: p.version, RTT: p.rtt().Microseconds(), Since: p.since, Pass: p.pass,
	}
	if p.node != nil {
		m.Node = &p.node.info
	}
	return m
}

// ours reports whether p is, or was last, connected to this server. A client that only its agent knows belongs to no server.
func (p *peer) ours() bool { return p.state != absent && p.far == nil && p.stamp != 0 }

// rtt returns the round trip between p and its server, 0 while it is unknown.
func (p *peer) rtt() time.Duration {
	switch {
	case p.session != nil:
		return p.session.rtt
	case p.far != nil:
		return p.far.rtt
	}
	return 0
}

// publish makes the other servers learn about a change of p, which must have been connected to this one.
func (s *Server) publish(p *peer) {
	for _, r := range s.replicas {
		r.changed.put(p.principal.ID, struct{}{})
		r.wake.Poke()
	}
}

// tellWants makes the server of p learn that participants of this server want p.
func (s *Server) tellWants(p *peer) {
	for _, t := range p.tunnels {
		if o := t.other(p); *t.wantedBy(o) {
			s.tellWant(o, p)
		}
	}
}

// tellWant makes the server of to learn whether p wants it, if p is connected here and to is connected elsewhere.
func (s *Server) tellWant(p, to *peer) {
	if !p.ours() || to.far == nil {
		return
	}
	if r := s.replicas[to.far.server]; r != nil {
		r.pairs.put(protocol.LinkPair{From: p.principal.ID, To: to.principal.ID}, struct{}{})
		r.wake.Poke()
	}
}

// disclaim makes every server learn that p does not want id. p may have subscribed to it while it was connected to another server.
func (s *Server) disclaim(p *peer, id uuid.UUID) {
	for _, r := range s.replicas {
		r.pairs.put(protocol.LinkPair{From: p.principal.ID, To: id}, struct{}{})
		r.wake.Poke()
	}
}

// measureEvery is the time between two measurements of a link, after the first few.
const measureEvery = 15 * time.Second

// measureReplica measures the round trip to another server until the link ends.
func (s *Server) measureReplica(r *replica) {
	conn, ok := r.conn.(interface{ Ping(context.Context) error })
	if !ok {
		return
	}
	ticker := time.NewTicker(measureEvery)
	defer ticker.Stop()
	for i := 0; r.ctx.Err() == nil; i++ {
		begin := time.Now()
		if conn.Ping(r.ctx) != nil {
			return // the reader returns the reason
		}
		rtt := time.Since(begin)
		s.mu.Lock()
		r.latest = rtt
		if r.rtt == 0 || rtt < r.rtt {
			r.rtt = rtt
		}
		s.mu.Unlock()
		if i+1 < probes {
			continue
		}
		select {
		case <-ticker.C:
		case <-r.ctx.Done():
		}
	}
}
