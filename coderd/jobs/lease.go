package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// patience returns how long a lease outlives its stream.
func (s *Service) patience() time.Duration { return s.opts.Grace + s.opts.Fence }

// watchLeases sets a deadline for each lease that has none yet and whose daemon is not connected here.
func (s *Service) watchLeases(ctx context.Context) error {
	leased, err := s.opts.DB.ListLeasedJobs(ctx)
	if err != nil {
		return fmt.Errorf("list running jobs: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, job := range leased {
		if job.WorkerID != nil && s.sessions[*job.WorkerID] != nil {
			continue
		}
		if d, ok := s.deadlines[job.ID]; !ok || d.epoch != job.Epoch {
			s.deadlines[job.ID] = deadline{epoch: job.Epoch, at: time.Now().Add(s.patience())}
		}
	}
	return nil
}

// endNow does what end does in its own transaction, unless the job's epoch has changed. If the result cannot be stored,
// the job fails, so that it does not hang.
func (s *Service) endNow(ctx context.Context, id uuid.UUID, epoch int64, result *provisionerpb.Result) error {
	try := func(result *provisionerpb.Result) error {
		var over bool
		err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
			over = false
			job, err := q.LockJob(ctx, id)
			if err != nil {
				return fmt.Errorf("lock job: %w", err)
			}
			if job.Epoch != epoch || ended(job.Status) {
				return nil
			}
			over = true
			return s.end(ctx, q, job, result)
		})
		if err == nil && over {
			s.count(ctx, id)
		}
		return err
	}
	err := try(result)
	if err == nil || fault.CodeOf(err) == fault.Unavailable || ctx.Err() != nil {
		return err
	}
	return errors.Join(err, try(&provisionerpb.Result{
		Error: "The server could not store the job's result. Its log has the cause.",
	}))
}

// expire ends the jobs whose daemons did not come back in time, and requeues those that no daemon accepted.
func (s *Service) expire() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-timer.C:
		case <-s.recount:
		}
		next := lookAround
		for id, d := range s.due() {
			after, err := s.expired(id, d)
			if err != nil && s.ctx.Err() == nil {
				s.log.Error("cannot settle lost job, trying again", "job", id, "err", err)
				after = 5 * time.Second
			}
			s.mu.Lock()
			switch {
			case s.deadlines[id] != d:
			case after > 0:
				d.at = time.Now().Add(after)
				s.deadlines[id] = d
			default:
				delete(s.deadlines, id)
				delete(s.stalled, id)
			}
			s.mu.Unlock()
		}
		ctx, cancel := context.WithTimeout(s.ctx, queryTimeout)
		if err := s.watchLeases(ctx); err != nil && s.ctx.Err() == nil {
			s.log.Warn("cannot check running jobs", "err", err)
		}
		cancel()
		s.mu.Lock()
		for _, d := range s.deadlines {
			next = min(next, max(time.Until(d.at), 10*time.Millisecond))
		}
		s.mu.Unlock()
		timer.Reset(next)
	}
}

// lostNote follows the reason why a job ended without a report from its daemon.
const lostNote = " The last reported state is kept, and the next build continues from it. " +
	"Changes that it began after its last report are not in that state and not listed here."

// expired settles one lease whose time is over. again is the delay until the next check, 0 when the lease is settled.
func (s *Service) expired(id uuid.UUID, d deadline) (again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, queryTimeout)
	defer cancel()
	if d.giveBack {
		return 0, s.requeue(ctx, id, d.epoch)
	}
	job, err := s.opts.DB.GetJob(ctx, id)
	if database.IsNotFound(err) || err == nil &&
		(job.Epoch != d.epoch || ended(job.Status) || job.Status == statusPending) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read job: %w", err)
	}
	var row dbsqlc.GetProvisionerUnseenRow // the zero value if the daemon has none
	if job.WorkerID != nil && !d.revoked {
		row, err = s.opts.DB.GetProvisionerUnseen(ctx, *job.WorkerID)
		if err != nil && !database.IsNotFound(err) {
			return 0, fmt.Errorf("read provisioner: %w", err)
		}
		if again := s.waitOn(job, row, d); err == nil && again > 0 {
			return again, nil
		}
	}
	if d.reason != "" {
		return 0, s.endNow(ctx, id, d.epoch, &provisionerpb.Result{Error: d.reason + lostNote})
	}
	return 0, s.endNow(ctx, id, d.epoch, s.outcome(job, row))
}

// waitOn returns how much longer a daemon's lease holds, 0 when it has ended. A daemon that is connected to another
// server keeps its lease, and so does one whose server was lost within the grace period: that server may only be slow.
func (s *Service) waitOn(job dbsqlc.ProvisionerJob, row dbsqlc.GetProvisionerUnseenRow, d deadline) time.Duration {
	switch {
	case row.Online && d.reason != "":
		return retryAfter // it lost its access, and a server is about to end its session
	case row.Online:
		return s.patience() // its server still sends heartbeats
	case d.reason != "":
		return 0 // it lost its access
	default:
		return s.remaining(job, row)
	}
}

func (s *Service) due() map[uuid.UUID]deadline {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[uuid.UUID]deadline{}
	for id, d := range s.deadlines {
		if !d.at.After(time.Now()) {
			out[id] = d
		}
	}
	return out
}
