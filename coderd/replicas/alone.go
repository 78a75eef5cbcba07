package replicas

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

// aloneAfter is how long a server must have been without a link before it counts as cut off.
const aloneAfter = 15 * time.Second

// alone is whether this server is cut off from the others. look sets it, on one goroutine.
type alone struct {
	since time.Time // when the last link was seen to be missing; zero while there is one, and by the clock of this process
	at    time.Time // the same by the database's clock, from the heartbeats
	cut   atomic.Bool
}

// CutOff reports whether this server has had no link to any other for 15 s while others live and can serve instead: one
// of them is linked, or was started earlier. So a deployment whose servers are all without links keeps one that serves.
// A server whose others have died is not cut off: their heartbeats ended before or with their links.
func (s *Service) CutOff() bool { return s.alone.cut.Load() }

// noteLinks decides whether this server is cut off, and tells the other servers how many links it has.
func (s *Service) noteLinks(ctx context.Context, rows []dbsqlc.ListServersRow) error {
	var linked []uuid.UUID
	if s.opts.Linked != nil {
		linked = s.opts.Linked()
	}
	s.noteAlone(rows, len(linked), time.Now())
	self := slices.IndexFunc(rows, func(r dbsqlc.ListServersRow) bool { return r.ID == s.opts.Self.ID })
	links := int32(len(linked))
	if self < 0 || rows[self].Links != nil && *rows[self].Links == links {
		return nil
	}
	if err := s.opts.DB.SetServerLinks(ctx, dbsqlc.SetServerLinksParams{ID: s.opts.Self.ID, Links: links}); err != nil {
		return fmt.Errorf("note links: %w", err)
	}
	return nil
}

// noteAlone is given all living servers, oldest first, and the time.
func (s *Service) noteAlone(rows []dbsqlc.ListServersRow, links int, now time.Time) {
	a := &s.alone
	if links > 0 {
		a.since = time.Time{}
		a.cut.Store(false)
		return
	}
	if a.since.IsZero() {
		a.since, a.at = now, time.Time{}
		for _, row := range rows {
			if row.BeatAt.After(a.at) {
				a.at = row.BeatAt
			}
		}
	}
	older, instead := true, false
	for _, row := range rows {
		if row.ID == s.opts.Self.ID {
			older = false
			continue
		}
		// It lives if its heartbeat is later than the loss of the links: it did not die with them.
		lives := row.BeatAt.After(a.at)
		instead = instead || lives && row.Links != nil && (*row.Links > 0 || older)
	}
	a.cut.Store(instead && now.Sub(a.since) >= aloneAfter)
}
