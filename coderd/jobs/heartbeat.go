package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

// DefaultHeartbeat is the interval at which a server renews its row.
const DefaultHeartbeat = 750 * time.Millisecond

// lostAfter is the number of missed heartbeats after which a server's daemons count as offline.
const lostAfter = 5

// beatTimeout bounds one heartbeat: a connection that has become silent must not delay the next one, which gets
// another.
const beatTimeout = 3 * time.Second

var errForgotten = errors.New("the daemon's row belongs to another session")

// heartbeats renews this server's row until the service stops, so that other servers know that its daemons still have a
// server.
func (s *Service) heartbeats() {
	ticker := time.NewTicker(s.opts.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			s.signOff()
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, beatTimeout)
		err := s.heartbeat(ctx)
		if err == nil {
			err = s.lookForAbsences(ctx)
		}
		cancel()
		if s.ctx.Err() == nil {
			s.logHeartbeats(err)
		}
	}
}

// logHeartbeats logs when heartbeats start to fail and when they succeed again, not every failure in between.
func (s *Service) logHeartbeats(err error) {
	switch {
	case err != nil && !s.silent:
		s.log.Warn("cannot store heartbeat, trying again", "err", err)
	case err == nil && s.silent:
		s.log.Info("heartbeat stored again")
	}
	s.silent = err != nil
}

// heartbeat renews this server's row, corrects what the database says of its daemons, and marks those of lost servers
// as offline.
func (s *Service) heartbeat(ctx context.Context) error {
	began := time.Now()
	if err := s.opts.DB.Heartbeat(ctx, dbsqlc.HeartbeatParams{ID: s.id, BeatSeconds: s.lost().Seconds()}); err != nil {
		return fmt.Errorf("store heartbeat: %w", err)
	}
	s.beaten(began)
	s.mu.Lock()
	connected := slices.Collect(maps.Keys(s.opening))
	open := maps.Clone(s.sessions)
	s.mu.Unlock()
	connected = slices.AppendSeq(connected, maps.Keys(open))
	if err := s.opts.DB.ReconcileProvisioners(ctx, dbsqlc.ReconcileProvisionersParams{
		ServerID: &s.id, Connected: nonNil(connected),
	}); err != nil {
		return fmt.Errorf("reconcile provisioners: %w", err)
	}
	if s.steadyFor() >= s.lost() { // otherwise the others may have been without the database, too
		lost, err := s.opts.DB.CloseLostProvisioners(ctx)
		if err != nil {
			return fmt.Errorf("mark lost provisioners offline: %w", err)
		}
		if lost > 0 {
			s.recount.Poke() // no server watches their leases yet
		}
	}
	if err := s.opts.DB.DeleteOldServers(ctx); err != nil {
		return fmt.Errorf("forget old servers: %w", err)
	}
	return s.cutForgotten(ctx, open)
}

// cutForgotten ends sessions that cannot lease anything: their daemon has a newer session with another server, or its
// row was deleted while this server counted as gone. The daemon then opens a new session.
func (s *Service) cutForgotten(ctx context.Context, open map[uuid.UUID]*session) error {
	if len(open) == 0 {
		return nil
	}
	ids, err := s.opts.DB.ListServerProvisioners(ctx, dbsqlc.ListServerProvisionersParams{
		ServerID: &s.id, Ids: slices.Collect(maps.Keys(open)),
	})
	if err != nil {
		return fmt.Errorf("list this server's provisioners: %w", err)
	}
	for id, x := range open {
		if !slices.Contains(ids, id) {
			x.cancel(errForgotten)
		}
	}
	return nil
}

// signOff removes this server's row after its sessions have ended.
func (s *Service) signOff() {
	s.streams.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	if err := s.opts.DB.DeleteServer(ctx, s.id); err != nil {
		s.log.Warn("cannot remove server's row", "err", err)
	}
}

func nonNil(ids []uuid.UUID) []uuid.UUID {
	if ids == nil {
		return []uuid.UUID{}
	}
	return ids
}
