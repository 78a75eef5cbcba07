package mesh

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/notify"
)

// Each pair of servers keeps one link. The server that started later dials it: it learns of the other one first, and a
// session through it need not wait for the others. The other one does if there is none for dialBackAfter, so a firewall
// or a wrong replica URL must stop both.

// LinkVersion and MinLinkVersion are the newest and oldest version of the protocol between servers that this program
// understands.
const (
	LinkVersion    = protocol.LinkVersion
	MinLinkVersion = protocol.MinLinkVersion
)

const (
	// dialBackAfter is how long a server lets the other one dial. It is longer than a dial takes, so that the two do
	// not dial at the same time.
	dialBackAfter = 3 * time.Second
	// linkedPoll is how often a server looks whether a link that the other one dialed has ended.
	linkedPoll = 500 * time.Millisecond
	// complainEvery is how often a link that cannot be made is logged.
	complainEvery = time.Minute
)

// Replica is another server of the deployment.
type Replica struct {
	ID  uuid.UUID
	URL *url.URL // where this server reaches it
	// Started is negative if it started before this server, and positive if after it. 0 means that this is not known.
	Started int
}

// dialsFirst reports whether the server with the given id dials another one at once. Of two servers, one does. Without
// their order, it is the one with the smaller id.
func dialsFirst(self uuid.UUID, to Replica) bool {
	return cmp.Or(to.Started, slices.Compare(self[:], to.ID[:])) < 0
}

// replicas holds what runs for each other server.
type replicas struct {
	sync.Mutex
	closed bool
	byID   map[uuid.UUID]*replica

	followers map[uuid.UUID]int // how many connections each has to this server's relay
	followed  notify.Broadcast  // of followers
}

type replica struct {
	url    string
	cancel context.CancelFunc
	err    string           // why this server's last dial failed; "" if it has not dialed
	ended  <-chan struct{}  // closed when this server does not know it any more
	lent   chan *cipherConn // connections to its relay that it has dialed
}

// SetReplicas links this server to the given others, and to no more. It does not block.
func (s *Service) SetReplicas(others []Replica) {
	s.replicas.Lock()
	defer s.replicas.Unlock()
	if s.replicas.closed {
		return
	}
	for id, r := range s.replicas.byID {
		if !slices.ContainsFunc(others, func(o Replica) bool { return o.ID == id && o.URL.String() == r.url }) {
			r.cancel()
			delete(s.replicas.byID, id)
		}
	}
	for _, o := range others {
		if o.ID == s.opts.ID || s.replicas.byID[o.ID] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		r := &replica{url: o.URL.String(), cancel: cancel, ended: ctx.Done(), lent: make(chan *cipherConn)}
		s.replicas.byID[o.ID] = r
		s.done.Go(func() { s.keepLink(ctx, o) })
		s.done.Go(func() { s.followRelay(ctx, o, r.lent) })
		s.done.Go(func() { s.lendRelay(ctx, o) })
	}
}

// endReplicas ends all links.
func (s *Service) endReplicas() {
	s.replicas.Lock()
	defer s.replicas.Unlock()
	s.replicas.closed = true
	for _, r := range s.replicas.byID {
		r.cancel()
	}
}

// keepLink dials another server whenever there is no link to it, until ctx ends.
func (s *Service) keepLink(ctx context.Context, to Replica) {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	var complained time.Time
	patience := s.dialBack
	if dialsFirst(s.opts.ID, to) {
		patience = 0
	}
	missing := time.Now()
	for ctx.Err() == nil {
		switch {
		case s.coord.Linked(to.ID):
			retry.Reset()
			missing = time.Now()
			_ = backoff.Sleep(ctx, linkedPoll, nil) // the loop ends with ctx
			continue
		case time.Since(missing) < patience:
			_ = backoff.Sleep(ctx, patience-time.Since(missing), nil)
			continue
		}
		conn, err := s.dialReplica(ctx, to, asLink)
		s.noteLink(to.ID, err)
		if err == nil {
			retry.Reset()
			if err := s.coord.Link(ctx, to.ID, conn); err != nil {
				s.log.Debug("link ended", "server", to.ID, "err", err)
			}
			missing = time.Now()
		} else if time.Since(complained) >= complainEvery && ctx.Err() == nil {
			s.log.Warn("cannot reach another server, trying again; its --replica-url must lead to it and to no other",
				"server", to.ID, "url", to.URL.Redacted(), "err", err)
			complained = time.Now()
		}
		if ctx.Err() != nil || retry.Wait(ctx) != nil {
			return
		}
	}
}

// serveLink serves a link that another server has dialed, until it ends.
func (s *Service) serveLink(ctx context.Context, with uuid.UUID, conn *cipherConn) {
	if err := s.coord.Link(ctx, with, conn); err != nil {
		s.log.Debug("link ended", "server", with, "err", err)
	}
}

// noteLink remembers for ServerLinks why a link cannot be made.
func (s *Service) noteLink(to uuid.UUID, err error) {
	s.replicas.Lock()
	defer s.replicas.Unlock()
	r := s.replicas.byID[to]
	if r == nil {
		return
	}
	if r.err = ""; err != nil {
		r.err = err.Error()
	}
}

// Unlinked reports whether a server is another one to which there is no link now, also if this server has not learned
// of it yet.
func (s *Service) Unlinked(server uuid.UUID) bool {
	return server != s.opts.ID && !s.coord.Linked(server)
}

// Linked returns the ids of the servers to which there is a link now.
func (s *Service) Linked() []uuid.UUID { return s.coord.Replicas() }

// HeardServers returns on how many links the other server was heard after a given time, and when any other server was
// heard last: the zero time if none ever was.
func (s *Service) HeardServers(after time.Time) (links int, last time.Time) {
	return s.coord.HeardServers(after)
}

// AgentHere reports whether an agent is connected to this server.
func (s *Service) AgentHere(id uuid.UUID) bool { return s.coord.Here(id) }
