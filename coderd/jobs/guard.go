package jobs

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// DefaultBuiltInGrace is how long a built-in provisioner's jobs outlive the last heartbeat of its server. A server that
// was killed can be back with its journals by then, and a living one that has lost the database has stopped them.
const DefaultBuiltInGrace = 28 * time.Second

// guardBuiltIn stops the jobs of this server's built-in provisioners when it alone has lost the database: the other
// servers take it for dead and end its jobs after BuiltInGrace, and nothing may run by then that the next build could
// meet. It begins at a third of that time, which leaves the daemon's 15 seconds to interrupt and kill. While the
// database is away for all servers, none ends anything, and the jobs go on.
func (s *Service) guardBuiltIn() {
	ticker := time.NewTicker(s.opts.Heartbeat)
	defer ticker.Stop()
	var outvoted time.Time // since when the others have had the database and this server has not; zero while that is not so
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		silent := time.Since(s.beat)
		s.mu.Unlock()
		if silent < s.lost() || !s.opts.Outvoted(s.ctx) {
			outvoted = time.Time{}
			continue
		}
		if outvoted.IsZero() {
			outvoted = time.Now()
		}
		if time.Since(outvoted) >= s.opts.BuiltInGrace/3-s.lost() {
			s.stopBuiltIn(silent)
		}
	}
}

// stopBuiltIn revokes the leases of the built-in provisioners. The jobs end when the database is back, if no other
// server has ended them.
func (s *Service) stopBuiltIn(silent time.Duration) {
	type lease struct {
		x     *session
		id    uuid.UUID
		epoch int64
	}
	var revoked []lease
	reason := fmt.Sprintf("The provisioner's server had lost the database for %s while other servers had it, so it stopped the job.", silent.Round(time.Second))
	s.mu.Lock()
	for _, x := range s.sessions {
		if !x.daemon.BuiltIn {
			continue
		}
		for id, epoch := range x.leases {
			revoked = append(revoked, lease{x, id, epoch})
			s.deadlines[id] = deadline{epoch: epoch, at: time.Now(), revoked: true, reason: reason}
		}
		for id, epoch := range x.offers {
			s.deadlines[id] = deadline{epoch: epoch, at: time.Now(), giveBack: true}
		}
		clear(x.leases)
		clear(x.offers)
	}
	s.mu.Unlock()
	for _, l := range revoked {
		s.log.Error("this server alone has lost the database, stopping a job", "peer", l.x.daemon.Name, "job", l.id)
		s.revoke(l.x, l.id[:], uint64(l.epoch), "the server has lost the database")
	}
	s.recount.Poke()
}
