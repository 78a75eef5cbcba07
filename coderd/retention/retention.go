// Package retention removes old data: states of all but the newest builds and later the builds themselves; logs of jobs
// and of agents that are gone; dry runs, imports that did not become a template version, and their archives; rows of
// the audit log and the connection log; sessions and tokens that ended; keys of requests; notifications; lifecycle
// events with their deliveries. It knows only ages and counts; the queries know what must stay.
//
// It works in small transactions to hold locks only briefly, each under an advisory lock so that only one server works
// at a time. What cannot be removed does not keep other data: it is logged and tried again an hour later.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

// Defaults of the server's flags.
const (
	DefaultStates    = 10
	DefaultJobs      = 90 * 24 * time.Hour
	DefaultBuilds    = 365 * 24 * time.Hour
	DefaultKeys      = 7 * 24 * time.Hour
	DefaultAgentLogs = 7 * 24 * time.Hour
)

// MinKeys is the shortest time that ended sessions and tokens are kept: every server must have noticed that they ended.
const MinKeys = time.Hour

const (
	every        = time.Hour
	batchTimeout = 30 * time.Second
	// fileGrace is the minimum time that an archive without a job is kept: a job that refers to it may be about to be
	// created.
	fileGrace = 24 * time.Hour
	// keepDelivered is how long messages are kept after they were delivered or given up. It must be longer than the day
	// in which equal events are announced once.
	keepDelivered = 7 * 24 * time.Hour
	// keepRequests is how long the keys of requests that created something are kept. The queries ignore older ones.
	keepRequests = 24 * time.Hour
	// keepEvents is how long lifecycle events and their deliveries are kept, for replays and for readers that come
	// back.
	keepEvents = 7 * 24 * time.Hour
	// keepRead is how long a notification stays in an inbox after it was read.
	keepRead = 90 * 24 * time.Hour
	// keepUnread is how long one stays that is never read.
	keepUnread = 2 * 365 * 24 * time.Hour
	// keepBuilds is the minimum number of newest builds of each workspace that are kept.
	keepBuilds = 10
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
	Limits
}

// Limits are how long data is kept. The zero value keeps all.
type Limits struct {
	// States is the number of newest builds of each workspace whose states are kept. 0 keeps all.
	States int
	// Jobs is how long logs of jobs, dry runs and imports without a template are kept after their end. 0 keeps all.
	Jobs time.Duration
	// Audit and Connections are how long rows of the audit log and ended sessions of the connection log are kept. 0
	// keeps all.
	Audit, Connections time.Duration
	// Builds is how long builds are kept after their end, with their jobs and resources. It keeps the 10 newest of each
	// workspace and those with a state. 0 keeps all.
	Builds time.Duration
	// Keys is how long sessions and tokens are kept after their end, at least MinKeys. 0 keeps all.
	Keys time.Duration
	// AgentLogs is how long the logs of an agent are kept after its last connection, once its workspace no longer has
	// it. 0 keeps all.
	AgentLogs time.Duration
}

// Service removes old data once an hour.
type Service struct {
	opts    Options
	removed *prometheus.CounterVec // rows removed, by kind of data
	life    context.Context        // ends with Stop
	stop    context.CancelFunc
	done    chan struct{} // closed when Start's goroutine has ended; nil before Start
}

// New returns a service that is not started.
func New(opts Options) *Service {
	s := &Service{opts: opts, removed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "codermesh_retention_removed_total",
		Help: "Rows of old data that this server removed, or jobs and agents whose logs it removed.",
	}, []string{"data"})}
	s.life, s.stop = context.WithCancel(context.Background())
	return s
}

// Collector returns the metrics of what this server removed.
func (s *Service) Collector() prometheus.Collector { return s.removed }

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

// kind is one kind of old data.
type kind struct {
	what   string
	off    bool
	remove func(context.Context, *dbsqlc.Queries) (rows int64, err error) // one batch
}

func (s *Service) kinds() []kind {
	ago := func(age time.Duration) time.Time { return time.Now().Add(-age) }
	jobs := ago(s.opts.Jobs)
	return []kind{
		{"states", s.opts.States <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.RemoveOldStates(ctx, dbsqlc.RemoveOldStatesParams{Kept: int32(s.opts.States), MaxRows: maxRows})
		}},
		{"logs", s.opts.Jobs <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.RemoveOldJobLogs(ctx, dbsqlc.RemoveOldJobLogsParams{Before: jobs, MaxRows: maxLogs})
		}},
		{"dry runs", s.opts.Jobs <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldDryRuns(ctx, dbsqlc.DeleteOldDryRunsParams{Before: jobs, MaxRows: maxRows})
		}},
		{"imports", s.opts.Jobs <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldImports(ctx, dbsqlc.DeleteOldImportsParams{Before: jobs, MaxRows: maxRows})
		}},
		{"builds", s.opts.Builds <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldBuilds(ctx, dbsqlc.DeleteOldBuildsParams{
				Before: ago(s.opts.Builds), Kept: int32(max(s.opts.States, keepBuilds)), MaxRows: maxLogs,
			})
		}},
		{"archives", s.opts.Jobs <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldFiles(ctx, dbsqlc.DeleteOldFilesParams{
				Before: ago(max(s.opts.Jobs, fileGrace)), MaxRows: maxRows,
			})
		}},
		{"agent logs", s.opts.AgentLogs <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldAgentLogs(ctx, dbsqlc.DeleteOldAgentLogsParams{
				Before: ago(s.opts.AgentLogs), MaxRows: maxLogs,
			})
		}},
		{"audit log", s.opts.Audit <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldAuditLogs(ctx, dbsqlc.DeleteOldAuditLogsParams{
				Before: ago(s.opts.Audit), MaxRows: maxRead,
			})
		}},
		{"connection log", s.opts.Connections <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldConnectionLogs(ctx, dbsqlc.DeleteOldConnectionLogsParams{
				Before: ago(s.opts.Connections), MaxRows: maxRead,
			})
		}},
		{"sessions and tokens", s.opts.Keys <= 0, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldKeys(ctx, dbsqlc.DeleteOldKeysParams{
				Before: ago(max(s.opts.Keys, MinKeys)), MaxRows: maxRead,
			})
		}},
		{"keys of requests", false, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldCreationKeys(ctx, dbsqlc.DeleteOldCreationKeysParams{
				Before: ago(keepRequests), MaxRows: maxRead,
			})
		}},
		{"notifications", false, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldNotifications(ctx, dbsqlc.DeleteOldNotificationsParams{
				Before: ago(keepDelivered), MaxRows: maxRead,
			})
		}},
		{"lifecycle events", false, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldLifecycleEvents(ctx, dbsqlc.DeleteOldLifecycleEventsParams{
				Before: ago(keepEvents), MaxRows: maxRead,
			})
		}},
		{"read notifications", false, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteOldInbox(ctx, dbsqlc.DeleteOldInboxParams{Before: ago(keepRead), MaxRows: maxRead})
		}},
		{"unread notifications", false, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
			return q.DeleteForgottenInbox(ctx, dbsqlc.DeleteForgottenInboxParams{
				Before: ago(keepUnread), MaxRows: maxRead,
			})
		}},
	}
}

// Run removes everything that is old now, unless another server is doing so. It returns the errors of all kinds of data
// that it could not remove.
func (s *Service) Run(ctx context.Context) error {
	var failed []error
	for _, kind := range s.kinds() {
		if kind.off {
			continue
		}
		removed, err := s.batches(ctx, kind.remove)
		if removed > 0 {
			s.removed.WithLabelValues(kind.what).Add(float64(removed))
			s.opts.Logger.Info("old data removed", "what", kind.what, "rows", removed)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("remove old %s: %w", kind.what, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// batches removes data batch by batch until nothing is left.
func (s *Service) batches(
	ctx context.Context, remove func(context.Context, *dbsqlc.Queries) (int64, error),
) (removed int64, err error) {
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
