package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/tracing"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// Channels. Payloads are job ids. The database announces changes of jobs (migration 55).
const (
	channelQueue  = "jobs"        // a job was queued, or a slot became free
	channelCancel = "jobs_cancel" // a running job must be canceled
)

// Channel returns the channel that announces changes of one job: its status, its log.
func Channel(job uuid.UUID) string { return "job:" + job.String() }

// Defaults of Options.
const (
	DefaultGrace       = 10 * time.Minute
	DefaultCancelGrace = time.Minute
	offerTimeout       = 5 * time.Second
	helloTimeout       = 10 * time.Second
	silence            = 20 * time.Second // four of the daemon's pings
	queryTimeout       = 30 * time.Second
	maxLogBytes        = 16 << 20  // per job
	maxErrorBytes      = 256 << 10 // of error lines beyond it
	maxLineBytes       = 64 << 10
	// DefaultFence is how much longer than Grace the server waits: within Grace a daemon that no longer hears its
	// server begins to stop its job, and the fence is the time it has for that.
	DefaultFence = 30 * time.Second
	// cutFence is how long the server waits for the jobs of a daemon that lost its access: more than the 15 seconds in
	// which such a daemon interrupts and then kills them.
	cutFence = 20 * time.Second
	// explainAfter is how long a job waits before its log explains why.
	explainAfter = 100 * time.Millisecond
	// lookAround is the interval at which the queue looks for leases that no server watches, because a replica died.
	lookAround = time.Minute
	retryAfter = time.Second
)

// Handler defines what a kind of job means. Its methods run inside transactions, and run again when a transaction is
// repeated.
type Handler interface {
	// Offer fills the payload of a job that has just been leased.
	Offer(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, offer *provisionerpb.Offer) error
	// Checkpoint stores Terraform's current state.
	Checkpoint(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, state []byte) error
	// Resources stores the resources that exist so far.
	Resources(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, resources []*provisionerpb.Resource) error
	// Finish stores the result, in the transaction that ends the job. A result that the server made itself (a job
	// canceled before it ran, a lost provisioner) has no part of its kind: what earlier checkpoints stored remains.
	Finish(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, result *provisionerpb.Result) error
}

// Rejected is the error that a handler's Finish returns for a result that cannot be used: the job fails with the
// reason, and what the handler has written remains.
type Rejected struct{ Reason string }

func (e *Rejected) Error() string { return e.Reason }

// Options are what the service needs. DB, PubSub and Logger are required.
type Options struct {
	DB     *database.DB
	PubSub pubsub.PubSub
	Logger *slog.Logger
	// Grace is how long a lease outlives its daemon's stream. 0 means DefaultGrace.
	Grace time.Duration
	// Fence is added to Grace before a job is given up. 0 means DefaultFence; negative none.
	Fence time.Duration
	// BuiltInGrace is how long the jobs of a built-in provisioner outlive the last heartbeat of its server. 0 means
	// DefaultBuiltInGrace.
	BuiltInGrace time.Duration
	// Outvoted reports whether other servers have the database while this one has not. It may block for 2 seconds. Nil
	// means that there are no other servers.
	Outvoted func(context.Context) bool
	// CancelGrace is how long a canceled job may take to end in order. 0 means DefaultCancelGrace.
	CancelGrace time.Duration
	// ID identifies this process among the servers of the database. The zero value means a new one.
	ID uuid.UUID
	// Heartbeat is the interval at which the server renews its row. 0 means DefaultHeartbeat.
	Heartbeat time.Duration
	// Mesh connects the daemons. Nil means that their paths are unknown.
	Mesh Mesh
	// Tracer records how long jobs wait. Nil records nothing.
	Tracer trace.TracerProvider
}

// Mesh connects daemons with this server.
type Mesh interface {
	// Paths returns how packets travel to the daemons: directly or relayed. Daemons without a known path are omitted.
	Paths() map[uuid.UUID]string
}

// Service is the queue and its dispatcher. Safe for concurrent use.
type Service struct {
	opts     Options
	log      *slog.Logger
	id       uuid.UUID          // of this process, among the servers of the database
	silent   bool               // the last heartbeat was not stored; used by heartbeats only
	handlers map[string]Handler // set before Start

	metrics *metrics
	wake    notify.Wake // a daemon may have a job to take
	recount notify.Wake // a deadline was added
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	streams sync.WaitGroup // daemons' sessions; Add only while closed is false

	mu        sync.Mutex
	sessions  map[uuid.UUID]*session // by daemon
	opening   map[uuid.UUID]int      // sessions that are stored and not in the table yet, by daemon
	deadlines map[uuid.UUID]deadline // of leases without a stream, by job
	stalled   map[uuid.UUID]string   // why a job's reports cannot be stored now, by job
	held      string                 // why no waiting job can be given out now, "" if they can
	beat      time.Time              // when the last heartbeat that was stored began
	steady    time.Time              // since when heartbeats have been stored without a gap
	there     time.Time              // since when they have been stored without a gap of returnTime
	closed    bool
}

// deadline is when a lease without a stream ends.
type deadline struct {
	epoch int64
	at    time.Time
	// giveBack means that no daemon has accepted the job, so it waits again instead of failing.
	giveBack bool
	// reason is the error of the job if it fails; empty means that its daemon was not seen.
	reason string
	// offline is since when the daemon had been offline when the deadline was set; zero if that was not known.
	offline time.Time
	// revoked means that this server has taken the job from its daemon, which may be online.
	revoked bool
}

// New returns a service that is not started.
func New(opts Options) *Service {
	if opts.Grace == 0 {
		opts.Grace = DefaultGrace
	}
	if opts.Fence == 0 {
		opts.Fence = DefaultFence
	}
	opts.Fence = max(opts.Fence, 0)
	if opts.ID == uuid.Nil {
		opts.ID = uuid.New()
	}
	if opts.Heartbeat == 0 {
		opts.Heartbeat = DefaultHeartbeat
	}
	if opts.BuiltInGrace == 0 {
		opts.BuiltInGrace = DefaultBuiltInGrace
	}
	if opts.CancelGrace == 0 {
		opts.CancelGrace = DefaultCancelGrace
	}
	s := &Service{
		opts: opts, log: opts.Logger, id: opts.ID, handlers: map[string]Handler{}, wake: notify.NewWake(), recount: notify.NewWake(),
		sessions: map[uuid.UUID]*session{}, opening: map[uuid.UUID]int{}, deadlines: map[uuid.UUID]deadline{}, stalled: map[uuid.UUID]string{},
	}
	s.metrics = newMetrics(s)
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Handle sets the handler of a kind. Call it before Start.
func (s *Service) Handle(kind string, h Handler) { s.handlers[kind] = h }

// Start begins to dispatch jobs. Jobs that were running when the server ended keep their leases: from now on their
// daemons have the grace period to come back. It blocks for a few queries.
func (s *Service) Start(ctx context.Context) error {
	if err := s.heartbeat(ctx); err != nil {
		return err
	}
	if err := s.opts.DB.DeleteStaleProvisioners(ctx); err != nil {
		return fmt.Errorf("forget old provisioners: %w", err)
	}
	if err := s.watchLeases(ctx); err != nil {
		return err
	}
	cancels := []func(){
		s.opts.PubSub.Subscribe(channelQueue, func(string) { s.wake.Poke() }),
		s.opts.PubSub.Subscribe(channelCancel, s.cancelRequested),
	}
	s.running.Go(func() {
		defer func() {
			for _, cancel := range cancels {
				cancel()
			}
		}()
		s.dispatch()
	})
	s.running.Go(s.expire)
	s.running.Go(s.heartbeats)
	if s.opts.Outvoted != nil {
		s.running.Go(s.guardBuiltIn)
	}
	s.wake.Poke()
	return nil
}

// Stop ends the daemons' sessions and waits for running work. Leases stay. Idempotent; works before Start.
func (s *Service) Stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.streams.Wait()
	s.running.Wait()
}

// NewJob is a job to queue.
type NewJob struct {
	Kind      string
	Org       uuid.UUID
	Initiator uuid.UUID
	FileID    uuid.UUID // the template's source
	Input     any       // what the handler needs to find its own rows; nil for none
	Tags      map[string]string
	Priority  int16 // lower first: 0 if a person waits, 1 for automatic jobs
}

// Insert queues a job in the caller's transaction; it is dispatched when that commits.
func (s *Service) Insert(ctx context.Context, q *dbsqlc.Queries, j NewJob) (dbsqlc.ProvisionerJob, error) {
	input := []byte("{}")
	var err error
	if j.Input != nil {
		if input, err = json.Marshal(j.Input); err != nil {
			return dbsqlc.ProvisionerJob{}, fmt.Errorf("encode job input: %w", err)
		}
	}
	wanted := jobtags.Normal(j.Tags)
	if err := jobtags.Check(wanted); err != nil {
		return dbsqlc.ProvisionerJob{}, err
	}
	if wanted[jobtags.Scope] == jobtags.User {
		wanted[jobtags.Owner] = j.Initiator.String() // a job never goes to another user's provisioner
	}
	tags, err := json.Marshal(wanted)
	if err != nil {
		return dbsqlc.ProvisionerJob{}, fmt.Errorf("encode job tags: %w", err)
	}
	job, err := q.InsertJob(ctx, dbsqlc.InsertJobParams{
		ID: uuid.New(), OrganizationID: j.Org, InitiatorID: j.Initiator, Kind: j.Kind, FileID: j.FileID, Input: input,
		Tags: tags, Priority: j.Priority,
		TraceParent: tracing.Parent(ctx),
	})
	if err != nil {
		return job, fmt.Errorf("insert job: %w", err)
	}
	return job, nil
}

// Cancel ends at once a waiting job and one whose daemon is offline, and asks the daemon of a running job to interrupt
// it. It returns a Conflict for a job that has ended. The audit log gets the entry, which names what the job works on.
func (s *Service) Cancel(ctx context.Context, id uuid.UUID, entry audit.Entry) error {
	var over bool
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		over = false
		job, err := q.LockJob(ctx, id)
		if err != nil {
			return lookup.Fault(err, rbac.ProvisionerJob, "lock job")
		}
		entry.Action = audit.Cancel
		if err := audit.Record(ctx, q, entry); err != nil {
			return err
		}
		over, err = s.cancel(ctx, q, job)
		return err
	})
	if err == nil && over {
		s.count(ctx, id)
	}
	return err
}

// CancelLocked is Cancel for a job that the caller's transaction has locked, and that has not ended. The caller records
// what it does instead.
func (s *Service) CancelLocked(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob) error {
	_, err := s.cancel(ctx, q, job)
	return err
}

// cancel cancels a locked job, and reports whether that has ended it.
func (s *Service) cancel(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob) (over bool, err error) {
	switch job.Status {
	case statusPending:
		return true, s.end(ctx, q, job, &provisionerpb.Result{
			Canceled: true, Error: "The job was canceled before it ran.",
		})
	case statusRunning, statusCanceling:
		if over, err = s.cancelAbsent(ctx, q, job); over || err != nil {
			return over, err
		}
		if err := q.CancelJob(ctx, job.ID); err != nil {
			return false, fmt.Errorf("cancel job: %w", err)
		}
		return false, q.Notify(ctx, dbsqlc.NotifyParams{Channel: channelCancel, Payload: job.ID.String()})
	default:
		return false, fault.New(fault.Conflict, "The job has already ended: %s", job.Status)
	}
}

// Statuses of a job.
const (
	statusPending   = "pending"
	statusRunning   = "running"
	statusCanceling = "canceling"
	statusSucceeded = "succeeded"
	statusCanceled  = "canceled"
	statusFailed    = "failed"
)

func ended(status string) bool {
	return status == statusSucceeded || status == statusCanceled || status == statusFailed
}

// end stores a job's result and its last status, in the caller's transaction, which has locked the job.
func (s *Service) end(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, result *provisionerpb.Result,
) error {
	handler := s.handlers[job.Kind]
	if handler == nil {
		return fmt.Errorf("job %s: no handler for %s", job.ID, job.Kind)
	}
	status := statusSucceeded
	switch {
	case result.GetCanceled():
		status = statusCanceled
	case result.GetError() != "":
		status = statusFailed
	}
	if err := s.settleLost(ctx, q, job, result); err != nil {
		return err
	}
	// Update the row first: a handler that reads its job sees how it ended.
	ends := dbsqlc.EndJobParams{
		ID: job.ID, Status: status, Error: database.Visible(result.GetError()), ErrorCode: result.GetErrorCode(),
		LastSeq: job.LastSeq, LogLength: job.LogLength, LogOverflowed: job.LogOverflowed,
	}
	if err := q.EndJob(ctx, ends); err != nil {
		return fmt.Errorf("end job: %w", err)
	}
	err := handler.Finish(ctx, q, job, result)
	if rejected, ok := errors.AsType[*Rejected](err); ok {
		ends.Status, ends.Error, ends.ErrorCode = statusFailed, database.Visible(rejected.Reason), ""
		err = q.EndJob(ctx, ends)
	}
	if err != nil {
		return fmt.Errorf("store result: %w", err)
	}
	return nil
}
