// Package retention removes old data: states of all but the newest builds, job logs, dry runs, imports that did not become a
// template version, and their archives; rows of the audit log and the connection log. It knows only ages and counts; the queries know what must stay.
//
// It works in small transactions to hold locks only briefly, each under an advisory lock so that only one server works at a
// time.
package retention

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
)

// Defaults of the server's flags.
const (
	DefaultStates = 10
	DefaultJobs   = 90 * 24 * time.Hour
)

const (
	every        = time.Hour
	batchTimeout = 30 * time.Second
	// fileGrace is the minimum time that an archive without a job is kept: a job that refers to it may be about to be
	// created.
	fileGrace = 24 * time.Hour
)

// Batches, in rows.
const (
	maxRows = 100
	maxRead = 1000 // rows of logs that are small and read by time
	maxLogs = 10   // jobs, of up to 160 000 lines each
)

// Options configure the service. DB and Logger are required.
type Options struct {
	DB     *database.DB
	Logger *slog.Logger
	// States is the number of newest builds of each workspace whose states are kept. 0 keeps all.
	States int
	// Jobs is how long logs of jobs, dry runs and imports without a template are kept after their end. 0 keeps all.
	Jobs time.Duration
	// Audit and Connections are how long rows of the audit log and ended sessions of the connection log are kept. 0 keeps all.
	Audit, Connections time.Duration
}

// Service removes old data once an hour.
type Service struct {
	opts Options
	life context.Context // ends with Stop
	stop context.CancelFunc
	done chan struct{} // closed when Start's goroutine has ended; nil before Start
}

// New returns a service that is not started.
func New(opts Options) *Service {
	s := &Service{opts: opts}
	s.life, s.stop = context.WithCancel(context.Background())
	return s
}

// Start starts the removal. It does not block.
func (s *Service) Start() {
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		for wait := time.Minute + rand.N(time.Minute); ; wait = every/2 + rand.N(every) {
			timer := time.NewTimer(wait)
			select {
			case <-s.life.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			if err := s.Run(s.life); err != nil && s.life.Err() == nil {
				s.opts.Logger.Warn("cannot remove old data, trying again in an hour", "err", err)
			}
		}
	}()
}

// Stop ends the removal and waits for it. It is idempotent, and works before Start.
func (s *Service) Stop() {
	s.stop()
	if s.done != nil {
		<-s.done
	}
}

// Run removes everything that is old now, unless another server is doing so.
func (s *Service) Run(ctx context.Context) error {
	before := time.Now().Add(-s.opts.Jobs)
	kinds := []struct {
		what   string
		off    bool
		remove func(context.Context, *dbsqlc.Queries) (int64, error)
	}{
		{"states", s.opts.States <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.RemoveOldStates(ctx, dbsqlc.RemoveOldStatesParams{Kept: int32(s.opts.States), MaxRows: maxRows})
		}},
		{"logs", s.opts.Jobs <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.RemoveOldJobLogs(ctx, dbsqlc.RemoveOldJobLogsParams{Before: before, MaxRows: maxLogs})
		}},
		{"dry runs", s.opts.Jobs <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldDryRuns(ctx, dbsqlc.DeleteOldDryRunsParams{Before: before, MaxRows: maxRows})
		}},
		{"imports", s.opts.Jobs <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldImports(ctx, dbsqlc.DeleteOldImportsParams{Before: before, MaxRows: maxRows})
		}},
		{"archives", s.opts.Jobs <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldFiles(ctx, dbsqlc.DeleteOldFilesParams{Before: time.Now().Add(-max(s.opts.Jobs, fileGrace)), MaxRows: maxRows})
		}},
		{"audit log", s.opts.Audit <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldAuditLogs(ctx, dbsqlc.DeleteOldAuditLogsParams{Before: time.Now().Add(-s.opts.Audit), MaxRows: maxRead})
		}},
		{"connection log", s.opts.Connections <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldConnectionLogs(ctx, dbsqlc.DeleteOldConnectionLogsParams{Before: time.Now().Add(-s.opts.Connections), MaxRows: maxRead})
		}},
	}
	for _, kind := range kinds {
		if kind.off {
			continue
		}
		removed, err := s.batches(ctx, kind.remove)
		if removed > 0 {
			s.opts.Logger.Info("old data removed", "what", kind.what, "rows", removed)
		}
		if err != nil {
			return fmt.Errorf("remove old %s: %w", kind.what, err)
		}
	}
	return nil
}

// batches removes data batch by batch until nothing is left.
func (s *Service) batches(ctx context.Context, remove func(context.Context, *dbsqlc.Queries) (int64, error)) (removed int64, err error) {
	for {
		var n int64
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, batchTimeout)
			defer cancel()
			return s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
				n = 0
				mine, err := q.TryRetentionLock(ctx)
				if err != nil || !mine {
					return err
				}
				n, err = remove(ctx, q)
				return err
			})
		}()
		if err != nil || n == 0 {
			return removed, err
		}
		removed += n
	}
}
