package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/tracing"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// dispatch gives jobs to daemons with a free slot whenever a job, a slot or a daemon becomes available.
func (s *Service) dispatch() {
	// A job that is not taken at once gets a line in its log that explains why.
	explain := time.NewTimer(explainAfter)
	defer explain.Stop()
	moves := time.NewTimer(placesEvery)
	moves.Stop()
	defer moves.Stop()
	moving := false // the timer of moves runs
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
			r := round{failing: map[uuid.UUID]bool{}, without: map[taker]bool{}}
			for s.round(r) {
				continue
			}
			explain.Reset(explainAfter + 20*time.Millisecond)
			if !moving {
				moving = true
				moves.Reset(placesEvery)
			}
		case <-moves.C:
			moving = false
			if err := s.explainMoves(); err != nil && s.ctx.Err() == nil {
				s.log.Warn("cannot log places of waiting jobs", "err", err)
			}
		case <-explain.C:
			if err := s.explainWaiting(); err != nil && s.ctx.Err() == nil {
				s.log.Warn("cannot log reasons of waiting jobs", "err", err)
				explain.Reset(retryAfter)
			}
		}
	}
}

// Warn adds a warning of the server's own to a job's log, in the caller's transaction.
func (s *Service) Warn(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, stage, text string) error {
	return s.say(ctx, q, job, provisionerpb.LogLevel_LOG_LEVEL_WARN, stage, text)
}

func (s *Service) say(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, level provisionerpb.LogLevel, stage, text string,
) error {
	line := &provisionerpb.LogLine{
		At: timestamppb.Now(), Level: level, Source: provisionerpb.LogSource_LOG_SOURCE_DAEMON, Stage: stage,
		Output: text,
	}
	size, _, err := s.storeLogs(ctx, q, job, &provisionerpb.LogBatch{Lines: []*provisionerpb.LogLine{line}})
	if err != nil {
		return err
	}
	if err := q.AdvanceJob(ctx, dbsqlc.AdvanceJobParams{ID: job.ID, LastSeq: job.LastSeq, Logged: size}); err != nil {
		return fmt.Errorf("update job: %w", err)
	}
	return nil
}

// round is what the dispatcher has learnt since it woke. It wakes again when a job, a slot or a daemon becomes
// available.
type round struct {
	failing map[uuid.UUID]bool // daemons that cannot be given a job: they must not keep the others from theirs
	without map[taker]bool     // those for whom no job waits
}

// taker says which jobs a daemon may take.
type taker struct {
	org      uuid.UUID // uuid.Nil for all organizations
	tags     string
	untagged bool
}

func (x *session) taker() taker {
	t := taker{org: x.org, tags: string(x.tags), untagged: x.untagged}
	if x.daemon.BuiltIn {
		t.org = uuid.Nil
	}
	return t
}

// round offers one job to each daemon with a free slot, and reports whether any was taken.
func (s *Service) round(r round) (again bool) {
	for _, x := range s.free() {
		if r.failing[x.daemon.ID] || r.without[x.taker()] {
			continue
		}
		taken, err := s.offer(x)
		if err != nil && s.ctx.Err() == nil {
			s.log.Error("cannot offer job, trying again", "peer", x.daemon.Name, "err", err)
			r.failing[x.daemon.ID] = true
			time.AfterFunc(retryAfter, func() { s.wake.Poke() })
		}
		if fault.CodeOf(err) == fault.Unavailable {
			return false // the database is unavailable, for the others too
		}
		if !taken && err == nil {
			r.without[x.taker()] = true
		}
		again = again || taken
	}
	return again && s.ctx.Err() == nil
}

// free lists the sessions with a free slot: the least busy first, so that work spreads, then by name, so that the order
// is stable.
func (s *Service) free() []*session {
	type candidate struct {
		*session
		busy int
	}
	s.mu.Lock()
	var free []candidate
	for _, x := range s.sessions {
		if x.slots > 0 {
			free = append(free, candidate{x, len(x.leases) + len(x.offers)})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(free, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.busy, b.busy), cmp.Compare(a.daemon.Name, b.daemon.Name))
	})
	out := make([]*session, len(free))
	for i, c := range free {
		out[i] = c.session
	}
	return out
}

// leaseNext leases the next job that a daemon may take: of its organization, or of any one for a built-in daemon. The
// zero job means that there is none.
func leaseNext(ctx context.Context, q *dbsqlc.Queries, x *session) (dbsqlc.ProvisionerJob, error) {
	p := dbsqlc.LeaseJobParams{
		WorkerID: &x.daemon.ID, FirstOrganization: x.org, LastOrganization: x.org, Tags: x.tags, Untagged: x.untagged,
	}
	if x.daemon.BuiltIn {
		p.FirstOrganization, p.LastOrganization = uuid.Nil, uuid.Max
	}
	job, err := q.LeaseJob(ctx, p)
	if database.IsNotFound(err) {
		return dbsqlc.ProvisionerJob{}, nil
	}
	if err != nil {
		return job, fmt.Errorf("lease job: %w", err)
	}
	return job, nil
}

// offer leases the next job for a daemon and pushes it.
func (s *Service) offer(x *session) (taken bool, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, queryTimeout)
	defer cancel()
	var job dbsqlc.ProvisionerJob
	var offer *provisionerpb.Offer
	var bad error // from the payload: the job's own fault
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		job, offer, bad = dbsqlc.ProvisionerJob{}, nil, nil
		var err error
		if job, err = leaseNext(ctx, q, x); err != nil || job.ID == uuid.Nil {
			return err
		}
		offer, bad = s.payload(ctx, q, job)
		return bad // rolled back: a broken statement has spoiled the transaction
	})
	s.hold(err)
	if bad != nil && ctx.Err() == nil && !database.IsUnavailable(bad) {
		s.log.Error("cannot offer job", "job", job.ID, "err", bad)
		// The lease was rolled back, so the job still has the previous epoch.
		why := "The server could not prepare the job. Its log has the cause."
		if f := fault.As(bad); f != nil && f.Code != fault.Internal {
			why = f.Error()
		}
		return true, s.endNow(ctx, job.ID, job.Epoch-1, &provisionerpb.Result{Error: why})
	}
	if err != nil && job.ID != uuid.Nil {
		// The transaction may have committed although its answer was lost. Giving back does nothing if it did not.
		s.mu.Lock()
		s.deadlines[job.ID] = deadline{epoch: job.Epoch, at: time.Now().Add(retryAfter), giveBack: true}
		s.mu.Unlock()
		s.recount.Poke()
	}
	if err != nil || offer == nil {
		return false, err
	}
	s.mu.Lock()
	there := s.sessions[x.daemon.ID] == x && x.slots > 0
	if there {
		x.slots--
		x.offers[job.ID] = job.Epoch
	}
	s.mu.Unlock()
	if !there { // the daemon left while the job was leased
		return true, s.requeue(ctx, job.ID, job.Epoch)
	}
	x.send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Offer{Offer: offer}})
	if job.TraceParent != "" && job.StartedAt != nil {
		tracing.Record(tracing.Continue(ctx, job.TraceParent), tracing.Tracer(s.opts.Tracer), "job queued", job.CreatedAt, *job.StartedAt, false,
			attribute.String("codermesh.job", job.ID.String()), attribute.String("codermesh.peer", x.daemon.Name))
	}
	time.AfterFunc(offerTimeout, func() { s.unanswered(x, job.ID, job.Epoch) })
	return true, nil
}

func (s *Service) payload(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob,
) (*provisionerpb.Offer, error) {
	handler := s.handlers[job.Kind]
	if handler == nil {
		return nil, fmt.Errorf("no handler for %s", job.Kind)
	}
	sum, err := q.GetFileSHA256(ctx, job.FileID)
	if err != nil {
		return nil, fmt.Errorf("read source's hash: %w", err)
	}
	offer := &provisionerpb.Offer{
		JobId: job.ID[:], Epoch: uint64(job.Epoch), FileId: job.FileID[:], SourceSha256: sum,
		TraceParent: job.TraceParent,
	}
	if err := handler.Offer(ctx, q, job, offer); err != nil {
		return nil, err
	}
	refer(offer)
	return offer, nil
}

// unanswered ends the session of a daemon that did not accept an offer in time: its state is unknown, so it must start
// a new session. The offers that it did not accept go to other daemons.
func (s *Service) unanswered(x *session, id uuid.UUID, epoch int64) {
	s.mu.Lock()
	e, open := x.offers[id]
	s.mu.Unlock()
	if open && e == epoch {
		s.log.Warn("offer not accepted in time", "peer", x.daemon.Name, "job", id)
		x.cancel(errors.New("the offer was not accepted in time"))
	}
}

// cancelRequested forwards a cancel to the daemon that runs the job, if its stream is here, and forces it after a grace
// period.
func (s *Service) cancelRequested(payload string) {
	id, err := uuid.Parse(payload)
	if err != nil {
		s.lookForCanceling()
		return
	}
	x, epoch := s.holder(id)
	if x == nil {
		return
	}
	s.sendCancel(x, id, epoch, false)
	time.AfterFunc(s.opts.CancelGrace, func() {
		if now, e := s.holder(id); now != nil && e == epoch {
			s.sendCancel(now, id, epoch, true)
		}
	})
}

// holder returns the session that runs a job.
func (s *Service) holder(id uuid.UUID) (*session, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sessions {
		if epoch, ok := x.leases[id]; ok {
			return x, epoch
		}
		if epoch, ok := x.offers[id]; ok {
			return x, epoch
		}
	}
	return nil, 0
}

func (s *Service) sendCancel(x *session, id uuid.UUID, epoch int64, force bool) {
	x.send(&provisionerpb.ServerMessage{Message: &provisionerpb.ServerMessage_Cancel{Cancel: &provisionerpb.Cancel{
		JobId: id[:], Epoch: uint64(epoch), Force: force,
	}}})
}

// lookForCanceling repeats the cancels of running jobs, because their notifications may have been lost.
func (s *Service) lookForCanceling() {
	ctx, cancel := context.WithTimeout(s.ctx, queryTimeout)
	defer cancel()
	jobs, err := s.opts.DB.ListLeasedJobs(ctx)
	if err != nil {
		if s.ctx.Err() == nil {
			s.log.Warn("cannot list canceled jobs", "err", err)
		}
		return
	}
	for _, job := range jobs {
		if job.Status == statusCanceling {
			s.cancelRequested(job.ID.String())
		}
	}
}
