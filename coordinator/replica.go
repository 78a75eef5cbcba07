package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/peering"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// remote describes a participant that is connected to another server.
type remote struct {
	server uuid.UUID
	rtt    time.Duration // between the two
}

// Replicas returns the ids of the servers to which there is a link, sorted.
func (s *Server) Replicas() []uuid.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]uuid.UUID, 0, len(s.links))
	for id := range s.links {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// Linked reports whether there is a link to a server.
func (s *Server) Linked(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links[id] != nil
}

// HeardServers returns on how many links the other server was heard after a given time, and when any other server was
// heard last, also on a link that has ended since: the zero time if none ever was.
func (s *Server) HeardServers(after time.Time) (links int, last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last = s.heard
	for _, l := range s.links {
		at := l.Heard()
		if at.After(after) {
			links++
		}
		if at.After(last) {
			last = at
		}
	}
	return links, last
}

// Links returns the figures of the links to other servers, sorted by server.
func (s *Server) Links() []peering.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	links := make([]peering.Info, 0, len(s.links))
	for _, l := range s.links {
		links = append(links, l.Info())
	}
	slices.SortFunc(links, func(a, b peering.Info) int { return slices.Compare(a.Server[:], b.Server[:]) })
	return links
}

// Link serves the link to the server with the given id until it or ctx ends, and closes conn. The caller has
// authenticated both ends. A later link to the same server takes the place of an earlier one. Link returns why the link
// ended.
func (s *Server) Link(ctx context.Context, id uuid.UUID, conn protocol.Conn) error {
	defer conn.Close(websock.StatusNormal, "")
	if id == uuid.Nil || id == s.opts.ID {
		return fmt.Errorf("link to server %s: it is this one", id)
	}
	l, err := peering.New(ctx, id, conn)
	if err != nil {
		return fmt.Errorf("link to server %s: %w", id, err)
	}
	defer l.End()
	if err := s.attachLink(l); err != nil {
		return err
	}
	defer s.serving.Done()
	defer context.AfterFunc(s.ctx, l.End)()
	s.log.Info("linked to another server", "server", id)
	err = l.Serve(deployment{s}, s.log)
	orphans := s.detachLink(l)
	s.log.Info("link to another server ended", "server", id, "err", err)
	s.recheckOrphans(orphans)
	return fmt.Errorf("link to server %s: %w", id, err)
}

// attachLink begins a link: everything here is to be sent. On success the caller owes serving.Done.
func (s *Server) attachLink(l *peering.Link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fault.New(fault.Unavailable, "the server is stopping")
	}
	if old := s.links[l.Server()]; old != nil {
		old.End()
		s.loseLink(old)
	}
	s.links[l.Server()] = l
	for id := range s.departed {
		l.Departed(id)
	}
	for id, p := range s.peers {
		if p.remote != nil && p.remote.server == l.Server() {
			s.publishWants(p)
		}
		if p.ours() {
			l.Changed(id)
		}
	}
	s.serving.Add(1)
	return nil
}

// detachLink ends a link. It returns the clients and proxies whose subscriptions only that server could authorize.
func (s *Server) detachLink(l *peering.Link) (orphans []uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links[l.Server()] != l {
		return nil
	}
	s.loseLink(l)
	if s.closed {
		return nil
	}
	for id, p := range s.peers {
		if p.remote != nil && p.remote.server == l.Server() && p.wants > 0 &&
			(p.principal.Kind == protocol.KindClient || p.principal.Kind == protocol.KindProxy) {
			orphans = append(orphans, id)
		}
	}
	return orphans
}

// loseLink marks the participants of a server as lost because the link to it has ended. Called with mu held.
func (s *Server) loseLink(l *peering.Link) {
	delete(s.links, l.Server())
	if at := l.Heard(); at.After(s.heard) {
		s.heard = at
	}
	if s.closed {
		return
	}
	for _, p := range s.peers {
		if p.remote != nil && p.remote.server == l.Server() && p.state == online {
			p.state, p.since, p.lastSeen = lost, time.Now(), time.Now()
			p.markPartners()
			s.awaitReturn(p)
		}
	}
}

// recheckOrphans asks the Authorizer about subscriptions for which a server vouched that is gone now: it may have ended
// before it learned of a revocation that came here before the subscription did.
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

// gone returns what other servers learn about a participant that is gone.
func (s *Server) gone(id uuid.UUID) protocol.LinkMessage {
	why := s.departed[id].reason
	return protocol.LinkMessage{Gone: &protocol.LinkGone{
		ID: id, Code: why.Code, Message: why.Message[:min(len(why.Message), protocol.MaxLinkText)],
	}}
}

// present returns what other servers learn about p.
func (p *peer) present() *protocol.Present {
	m := &protocol.Present{
		ID: p.principal.ID, Kind: p.principal.Kind, Name: p.principal.Name, Subject: p.principal.Subject,
		Session: p.principal.Session,
		Addr:    p.principal.Addr, Detail: p.principal.Detail,
		Key: p.key, Stamp: p.stamp, Lost: p.state == lost, Version: p.version, RTT: p.rtt().Microseconds(),
		Since: p.since, Pass: p.pass,
	}
	if p.node != nil {
		m.Node = &p.node.info
	}
	return m
}

// ours reports whether p is, or was last, connected to this server. A client that only its agent knows belongs to no
// server.
func (p *peer) ours() bool { return p.state != absent && p.remote == nil && p.stamp != 0 }

// rtt returns the round trip between p and its server, 0 while it is unknown.
func (p *peer) rtt() time.Duration {
	switch {
	case p.session != nil:
		return p.session.rtt
	case p.remote != nil:
		return p.remote.rtt
	}
	return 0
}

// publish makes the other servers learn about a change of p, which must have been connected to this one.
func (s *Server) publish(p *peer) {
	for _, l := range s.links {
		l.Changed(p.principal.ID)
	}
}

// publishWants makes the server of p learn which participants of this server want p.
func (s *Server) publishWants(p *peer) {
	for _, t := range p.tunnels {
		if o := t.other(p); *t.wantedBy(o) {
			s.publishWant(o, p)
		}
	}
}

// publishWant makes the server of to learn whether p wants it, if p is connected here and to is connected elsewhere.
func (s *Server) publishWant(p, to *peer) {
	if !p.ours() || to.remote == nil {
		return
	}
	if l := s.links[to.remote.server]; l != nil {
		l.Subscribed(protocol.LinkPair{From: p.principal.ID, To: to.principal.ID})
	}
}

// disclaim makes every server learn that p does not want id. p may have subscribed to it while it was connected to
// another server.
func (s *Server) disclaim(p *peer, id uuid.UUID) {
	for _, l := range s.links {
		l.Subscribed(protocol.LinkPair{From: p.principal.ID, To: id})
	}
}
