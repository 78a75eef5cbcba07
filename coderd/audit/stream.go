package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/internal/backoff"
)

const (
	// lookback is how far a stream looks back after it may have missed a row. A transaction is shorter, so a row of the
	// time before was seen when it was announced.
	lookback = 2 * time.Minute
	// streamQueue bounds the rows that wait to be read. When it is full, the stream looks back instead.
	streamQueue = 1024
)

// stream copies the log to a writer as it grows.
type stream struct {
	*Service
	out   io.Writer
	log   *slog.Logger
	since time.Time               // rows before were there when the stream began
	seen  map[uuid.UUID]time.Time // rows that were written within the lookback, with their times
}

// Follow prepares a stream of the log to w: every row that any server of this database, or a command on its host,
// writes from now on becomes one JSON object on a line, in the form of the API. The caller runs the returned function,
// which blocks until ctx ends. A row is written at least once while the stream runs; a restart of the server can lose
// rows, which an export has.
func (s *Service) Follow(
	ctx context.Context, changes pubsub.PubSub, w io.Writer, log *slog.Logger,
) (run func(), err error) {
	st := &stream{Service: s, out: w, log: log, since: time.Now().Add(-lookback), seen: map[uuid.UUID]time.Time{}}
	ids := make(chan uuid.UUID, streamQueue)
	stop := changes.Subscribe("audit", func(payload string) {
		id, err := uuid.Parse(payload)
		if err != nil {
			id = uuid.Nil // look again
		}
		select {
		case ids <- id:
		default: // full of rows that are newer than the lookback: one look finds this one too
		}
	})
	before, err := st.read(ctx, dbsqlc.ListAuditLogsParams{Since: &st.since})
	if err != nil {
		stop()
		return nil, err
	}
	for _, row := range before {
		st.seen[row.AuditLog.ID] = row.AuditLog.CreatedAt
	}
	return func() {
		defer stop()
		st.run(ctx, ids)
	}, nil
}

func (s *stream) run(ctx context.Context, ids <-chan uuid.UUID) {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second}
	for {
		var p dbsqlc.ListAuditLogsParams
		select {
		case <-ctx.Done():
			return
		case id := <-ids:
			p = wanted(id, ids)
		}
		for err := s.copy(ctx, p); err != nil; err = s.copy(ctx, p) {
			if ctx.Err() != nil {
				return
			}
			s.log.Warn("cannot stream the audit log, trying again", "err", err)
			if retry.Wait(ctx) != nil {
				return
			}
			p = dbsqlc.ListAuditLogsParams{}
		}
		retry.Reset()
	}
}

// wanted returns what selects the announced rows: first, and those that wait.
func wanted(first uuid.UUID, ids <-chan uuid.UUID) dbsqlc.ListAuditLogsParams {
	all := []uuid.UUID{first}
	for len(all) < streamQueue {
		select {
		case id := <-ids:
			all = append(all, id)
			continue
		default:
		}
		break
	}
	if slices.Contains(all, uuid.Nil) || len(all) == streamQueue {
		return dbsqlc.ListAuditLogsParams{}
	}
	return dbsqlc.ListAuditLogsParams{Ids: all}
}

// again selects what may have been missed.
func (s *stream) again() dbsqlc.ListAuditLogsParams {
	since := time.Now().Add(-lookback)
	if since.Before(s.since) {
		since = s.since
	}
	return dbsqlc.ListAuditLogsParams{Since: &since}
}

// copy writes the selected rows that were not written before, oldest first.
func (s *stream) copy(ctx context.Context, p dbsqlc.ListAuditLogsParams) error {
	if p.Ids == nil {
		p = s.again()
	}
	rows, err := s.read(ctx, p)
	if err != nil {
		return err
	}
	for _, row := range slices.Backward(rows) {
		id := row.AuditLog.ID
		if _, ok := s.seen[id]; ok {
			continue
		}
		entry, err := toJSON(row)
		if err != nil {
			return err
		}
		line, err := json.Marshal(entry)
		if err != nil {
			return fmt.Errorf("encode audit row: %w", err)
		}
		if _, err := s.out.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("write audit stream: %w", err)
		}
		s.seen[id] = row.AuditLog.CreatedAt
	}
	if len(s.seen) > streamQueue {
		old := time.Now().Add(-2 * lookback)
		for id, at := range s.seen {
			if at.Before(old) {
				delete(s.seen, id)
			}
		}
	}
	return nil
}

// read returns all selected rows, newest first.
func (s *stream) read(ctx context.Context, p dbsqlc.ListAuditLogsParams) ([]dbsqlc.ListAuditLogsRow, error) {
	var all []dbsqlc.ListAuditLogsRow
	for p.PageLimit = exportPage; ; {
		rows, err := s.db.ListAuditLogs(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		all = append(all, rows...)
		if len(rows) < exportPage {
			return all, nil
		}
		last := rows[len(rows)-1].AuditLog
		p.Before, p.BeforeID = &last.CreatedAt, &last.ID
	}
}
