package mesh

import (
	"context"
	"net"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// Each server's relay follows each other's on a connection of its own, beside the link: packets of others do not delay
// what the coordinators say. A server dials those that it follows. One that others do not follow for dialBackAfter
// lends them connections to its relay, so that packets pass in both directions if either server can dial the other.
// A server that has just started lends to older ones at once: they may not reach it, and learn of it only now.

// followRelay lets this server's relay follow another one's until ctx ends.
func (s *Service) followRelay(ctx context.Context, to Replica, lent <-chan *cipherConn) {
	s.relay.Follow(ctx, to.ID.String(), func(ctx context.Context) (net.Conn, error) {
		conn, err := s.dialOrBorrow(ctx, to, lent)
		if err != nil {
			return nil, err
		}
		return newRelayConn(conn), nil
	})
}

// dialOrBorrow returns a connection to another server's relay: one that the other server has dialed, if there is one
// before this server's own dial has succeeded.
func (s *Service) dialOrBorrow(ctx context.Context, to Replica, lent <-chan *cipherConn) (*cipherConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn *cipherConn
		err  error
	}
	dialed := make(chan result, 1)
	go func() {
		conn, err := s.dialReplica(ctx, to, asFollower)
		dialed <- result{conn, err}
	}()
	select {
	case own := <-dialed:
		return own.conn, own.err
	case conn := <-lent:
		cancel()
		if own := <-dialed; own.err == nil {
			own.conn.CloseNow()
		}
		return conn, nil
	}
}

// serveRelay serves this server's relay to another server that follows it, until the connection ends.
func (s *Service) serveRelay(ctx context.Context, follower uuid.UUID, conn *cipherConn) {
	s.countFollower(follower, 1)
	defer s.countFollower(follower, -1)
	s.relay.ServeRelay(ctx, newRelayConn(conn))
}

func (s *Service) countFollower(id uuid.UUID, n int) {
	s.replicas.Lock()
	defer s.replicas.Unlock()
	if s.replicas.followers[id] += n; s.replicas.followers[id] == 0 {
		delete(s.replicas.followers, id)
	}
	s.replicas.followed.Notify()
}

// lendRelay dials another server whenever that one does not follow this server's relay, and serves the relay to it,
// until ctx ends.
func (s *Service) lendRelay(ctx context.Context, to Replica) {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	patience := s.dialBack
	if to.Started < 0 {
		patience = 0
	}
	for s.awaitUnfollowed(ctx, to.ID, &patience) == nil {
		conn, err := s.dialReplica(ctx, to, asLender)
		if err == nil {
			retry.Reset()
			s.serveRelay(ctx, to.ID, conn)
		} else if ctx.Err() == nil {
			s.log.Debug("cannot lend another server a connection to the relay", "server", to.ID, "err", err)
		}
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// awaitUnfollowed blocks until another server has not followed this one's relay for patience, which is dialBackAfter
// once it has followed. It fails if ctx ends.
func (s *Service) awaitUnfollowed(ctx context.Context, id uuid.UUID, patience *time.Duration) error {
	var passed <-chan time.Time // nil while the other server follows
	for {
		s.replicas.Lock()
		followed, change := s.replicas.followers[id] > 0, s.replicas.followed.Changed()
		s.replicas.Unlock()
		switch {
		case followed:
			passed, *patience = nil, s.dialBack
		case passed == nil:
			passed = time.After(*patience)
		}
		select {
		case <-passed:
			return nil
		case <-change: // perhaps of a third server, which does not begin the time anew
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// borrowRelay hands a connection to another server's relay to the loop that follows that relay, if it looks for one.
func (s *Service) borrowRelay(_ context.Context, lender uuid.UUID, conn *cipherConn) {
	s.replicas.Lock()
	r := s.replicas.byID[lender]
	s.replicas.Unlock()
	if r == nil {
		conn.Close(websock.StatusTryAgain, "this server does not know the other one yet")
		return
	}
	wait := time.NewTimer(dialBackAfter)
	defer wait.Stop()
	select {
	case r.lent <- conn:
	case <-r.ended:
		conn.CloseNow()
	case <-wait.C:
		conn.Close(websock.StatusTryAgain, "this server follows the relay already")
	}
}
