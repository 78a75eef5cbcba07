package replicas

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

// Servers hear each other every peering.MeasureEvery (3 s) on each link, so that these times forgive several pings that
// are late.
const (
	// aloneAfter is how long a server hears no other before it counts as cut off.
	aloneAfter = 15 * time.Second
	// quietAfter is how long a link is silent before it is not counted any more. Of two servers that lose their link,
	// one serves on, and knows that the other one does not. So it is shorter than aloneAfter, by more than what one of
	// them may have heard later than the other one.
	quietAfter = 6 * time.Second
	// livesFor is how old the heartbeat of a server that lives may be. It is shorter than aloneAfter by more than what
	// a server that died may have lived after it was heard.
	livesFor = 5 * time.Second
)

// alone is whether this server is cut off from the others.
type alone struct {
	began time.Time   // when this server began to look for others; Start sets it
	cut   atomic.Bool // as of the last look
}

// CutOff reports whether this server has heard no other for 15 s, on any link, while others run and can serve instead:
// one of them is linked, or was started earlier. So a deployment whose servers are all without links keeps one that
// serves. A server whose others have died is not cut off: their heartbeats ended soon after they were last heard.
func (s *Service) CutOff() bool {
	if !s.alone.cut.Load() {
		return false
	}
	now := time.Now()
	_, last := s.heard(now)
	return now.Sub(last) >= aloneAfter
}

// heard returns how many links are not silent, and when another server was last heard, or could first have been.
func (s *Service) heard(now time.Time) (links int, last time.Time) {
	if s.opts.Heard != nil {
		links, last = s.opts.Heard(now.Add(-quietAfter))
	}
	if last.Before(s.alone.began) {
		last = s.alone.began
	}
	return links, last
}

// untilLook returns when to look again: at the moments too at which silence may begin to mean something.
func (s *Service) untilLook(now time.Time) time.Duration {
	next := lookEvery
	_, last := s.heard(now)
	for _, after := range []time.Duration{quietAfter, aloneAfter} {
		if rest := after - now.Sub(last); rest > 0 {
			next = min(next, rest)
		}
	}
	return next
}

// noteLinks decides whether this server is cut off, and tells the other servers on how many links it hears them.
func (s *Service) noteLinks(ctx context.Context, rows []dbsqlc.ListServersRow) error {
	links := s.decide(rows, time.Now())
	self := slices.IndexFunc(rows, func(r dbsqlc.ListServersRow) bool { return r.ID == s.opts.Self.ID })
	if self < 0 || rows[self].Links != nil && *rows[self].Links == links {
		return nil
	}
	if err := s.opts.DB.SetServerLinks(ctx, dbsqlc.SetServerLinksParams{ID: s.opts.Self.ID, Links: links}); err != nil {
		return fmt.Errorf("note links: %w", err)
	}
	return nil
}

// decide decides whether this server is cut off, and returns how many links are not silent. It is given all servers,
// oldest first, and the time.
func (s *Service) decide(rows []dbsqlc.ListServersRow, now time.Time) (links int32) {
	n, last := s.heard(now)
	s.alone.cut.Store(now.Sub(last) >= aloneAfter && s.othersServe(rows))
	return int32(n)
}

// othersServe reports whether another server can serve instead of this one, which hears none. It is given all servers,
// oldest first.
func (s *Service) othersServe(rows []dbsqlc.ListServersRow) bool {
	older := true
	for _, row := range rows {
		if row.ID == s.opts.Self.ID {
			older = false
			continue
		}
		lives := row.Now.Sub(row.BeatAt) < livesFor
		known := row.Now.Sub(row.StartedAt) >= aloneAfter // there was time to link to it
		if lives && known && row.Links != nil && (*row.Links > 0 || older) {
			return true
		}
	}
	return false
}
