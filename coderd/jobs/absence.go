package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// absentBeats is for how many heartbeats a running job's provisioner is offline before the job says so. Connections
// that move to another server take less.
const absentBeats = 4

// returnTime is how long an external daemon that a server could not hear before, because the server was not there or
// had no database, has to connect again before its job says that it is offline. Daemons try at least every 15 seconds.
const returnTime = 20 * time.Second

// absenceStage is the stage of the log in which the server reports that the provisioner went, and came back.
const absenceStage = "Provisioner"

func offlineSince(name string, since time.Time) string {
	return fmt.Sprintf("The provisioner %s has been offline since %s.", name,
		since.UTC().Format("2006-01-02 15:04:05 UTC"))
}

// absenceRemedy says how a job ends whose provisioner is offline.
func (s *Service) absenceRemedy(builtIn bool) string {
	if builtIn {
		return fmt.Sprintf("It belongs to a server that does not answer. The job fails after %s unless that server comes back.", min(s.opts.BuiltInGrace, s.patience()))
	}
	return fmt.Sprintf("The job goes on there if only its network has failed, and fails after %s unless the "+
		"provisioner comes back. If its machine is gone for good, cancel the job to end it now.", s.patience())
}

// lost is how long a server's daemons count as online without its heartbeat.
func (s *Service) lost() time.Duration { return lostAfter * s.opts.Heartbeat }

func (s *Service) absentAfter() time.Duration { return absentBeats * s.opts.Heartbeat }

// beaten notes that a heartbeat was stored. Who was without the database for a while, or did not run, cannot tell who
// else was: the others' silence counts from now on.
func (s *Service) beaten(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.Sub(s.beat) > s.lost() {
		s.steady = began
	}
	if began.Sub(s.beat) > max(returnTime, s.lost()) {
		s.there = began
	}
	s.beat = began
}

// steadyFor returns for how long this server has stored its heartbeats without a gap.
func (s *Service) steadyFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steady.IsZero() {
		return 0
	}
	return time.Since(s.steady)
}

// lookForAbsences marks the running jobs whose daemons went offline, tells in their logs, and does the reverse for
// those that came back. It schedules the end of jobs that wait for a daemon in vain.
func (s *Service) lookForAbsences(ctx context.Context) error {
	rows, err := s.opts.DB.ListAbsences(ctx, s.absentAfter().Seconds())
	if err != nil {
		return fmt.Errorf("list jobs of offline provisioners: %w", err)
	}
	for _, row := range rows {
		if row.LastSeenAt != nil && !row.BuiltIn && !row.Online && s.mayReturn(*row.LastSeenAt) {
			continue
		}
		if row.Online == (row.ProvisionerJob.AbsentSince != nil) && row.LastSeenAt != nil {
			if err := s.noteAbsence(ctx, row); err != nil {
				return err
			}
		}
		if !row.Online && row.LastSeenAt != nil {
			s.expectEnd(row.ProvisionerJob, *row.LastSeenAt)
		}
	}
	return nil
}

// thereFor returns for how long this server has been there to hear external daemons, but for short gaps.
func (s *Service) thereFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.there)
}

// mayReturn reports whether a daemon that was last seen at a time may be about to connect again.
func (s *Service) mayReturn(seen time.Time) bool {
	there := s.thereFor()
	return there < returnTime && time.Since(seen) > there
}

func (s *Service) noteAbsence(ctx context.Context, row dbsqlc.ListAbsencesRow) error {
	return s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		job, err := q.LockJob(ctx, row.ProvisionerJob.ID)
		if err != nil {
			return fmt.Errorf("lock job: %w", err)
		}
		if ended(job.Status) || job.Epoch != row.ProvisionerJob.Epoch || row.Online == (job.AbsentSince == nil) {
			return nil // another server has noted it
		}
		level, text, since := provisionerpb.LogLevel_LOG_LEVEL_INFO, fmt.Sprintf("The provisioner %s is back.",
			row.Name), (*time.Time)(nil)
		if !row.Online {
			since = row.LastSeenAt
			level, text = provisionerpb.LogLevel_LOG_LEVEL_WARN, offlineSince(row.Name,
				*since)+" "+s.absenceRemedy(row.BuiltIn)
		}
		if err := q.MarkJobAbsent(ctx, dbsqlc.MarkJobAbsentParams{ID: job.ID, AbsentSince: since}); err != nil {
			return fmt.Errorf("mark job: %w", err)
		}
		return s.say(ctx, q, job, level, absenceStage, text)
	})
}

// expectEnd looks at the lease of a daemon that has been offline since a time now, unless that was done and nothing has
// changed.
func (s *Service) expectEnd(job dbsqlc.ProvisionerJob, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if job.WorkerID != nil && s.sessions[*job.WorkerID] != nil {
		return
	}
	d, ok := s.deadlines[job.ID]
	if ok && d.epoch == job.Epoch &&
		(d.giveBack || d.reason != "" || d.offline.Equal(since) && job.Status != statusCanceling) {
		return
	}
	s.deadlines[job.ID] = deadline{epoch: job.Epoch, at: time.Now(), offline: since}
	s.recount.Poke()
}

// remaining returns how much longer the lease of a daemon that is offline holds. What it has done while no server was
// there to hear it is in its journal: only the time in which this server could have heard it counts.
func (s *Service) remaining(job dbsqlc.ProvisionerJob, row dbsqlc.GetProvisionerUnseenRow) time.Duration {
	unseen, patience := min(seconds(row.UnseenSeconds), s.thereFor()), s.patience()
	if row.BuiltIn && row.Silent {
		patience, unseen = min(patience, s.opts.BuiltInGrace), min(unseen, s.steadyFor())
	}
	if job.Status == statusCanceling {
		patience = min(patience, s.opts.CancelGrace)
		if row.LastSeenAt != nil && job.CanceledAt != nil && job.CanceledAt.After(*row.LastSeenAt) {
			patience = min(patience, s.absentAfter()) // the daemon does not know of the cancel
		}
	}
	return max(patience-unseen, 0)
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// outcome is how a job ends whose daemon did not come back.
func (s *Service) outcome(job dbsqlc.ProvisionerJob, row dbsqlc.GetProvisionerUnseenRow) *provisionerpb.Result {
	since := ""
	if row.LastSeenAt != nil {
		since = " " + offlineSince(row.Name, *row.LastSeenAt)
	}
	switch {
	case job.Status == statusCanceling:
		return &provisionerpb.Result{Canceled: true, Error: "The job was canceled." + since + lostNote}
	case row.BuiltIn && s.opts.BuiltInGrace < s.patience():
		return &provisionerpb.Result{Error: "The job's provisioner ended with its server." + since + lostNote}
	}
	return &provisionerpb.Result{
		Error: fmt.Sprintf("The provisioner has been offline for %s.%s", s.opts.Grace, lostNote),
	}
}

// cancelAbsent ends a job at once that is to be canceled and whose daemon is known to be offline, in the caller's
// transaction, which has locked the job. It reports whether it did. What the daemon may still run has no lease any
// more: it stops when the daemon reaches a server, and after the grace period otherwise.
func (s *Service) cancelAbsent(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob) (bool, error) {
	if job.WorkerID == nil {
		return false, nil
	}
	row, err := q.GetProvisionerUnseen(ctx, *job.WorkerID)
	if database.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read provisioner: %w", err)
	}
	if row.Online || seconds(row.UnseenSeconds) < s.absentAfter() {
		return false, nil
	}
	if !row.BuiltIn && row.LastSeenAt != nil && s.mayReturn(*row.LastSeenAt) {
		return false, nil // it learns of the cancel when it connects
	}
	job.Status = statusCanceling
	return true, s.end(ctx, q, job, s.outcome(job, row))
}
