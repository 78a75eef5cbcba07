package workspaces

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

const (
	// scheduleEvery is the interval at which the clock is compared with deadlines and schedules.
	scheduleEvery = 30 * time.Second
	// slowLogins is how long renewing one owner's logins may take before the rest of a round renews no more logins.
	slowLogins = 5 * time.Second
	// lateStart is how late a scheduled start may still happen, after the server was down.
	lateStart = time.Hour
)

// Start starts the scheduler, which stops workspaces at their deadline and starts them on schedule. It does not block.
func (s *Service) Start() {
	s.stopped = make(chan struct{})
	go func() {
		ctx := s.life
		defer close(s.stopped)
		for {
			// Replicas should not all check at once.
			timer := time.NewTimer(scheduleEvery/2 + rand.N(scheduleEvery/2))
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			if err := s.RunSchedule(ctx, time.Now()); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "cannot create scheduled builds, trying again", "err", err)
			}
		}
	}()
}

// Stop ends watches and the scheduler, and waits for the scheduler. It is idempotent, and works before Start.
func (s *Service) Stop() {
	s.stop()
	if s.stopped != nil {
		<-s.stopped
	}
}

// RunSchedule makes the builds that are due at the given time. Several replicas may call it at once: the workspace's lock
// and its latest build decide.
func (s *Service) RunSchedule(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleEvery)
	defer cancel()
	if err := s.stopOverdue(ctx, now); err != nil {
		return err
	}
	stopped, err := s.opts.DB.ListAutostartWorkspaces(ctx)
	if err != nil {
		return fmt.Errorf("list workspaces with a schedule: %w", err)
	}
	slow := false
	for _, w := range stopped {
		if w.AutostartSchedule == nil || w.CompletedAt == nil || !startDue(now, *w.AutostartSchedule, *w.CompletedAt) {
			continue
		}
		if !slow { // a provider that does not answer must not keep every workspace from starting
			began := time.Now()
			if err := s.opts.ExternalAuth.Freshen(ctx, w.OwnerID); err != nil {
				return err
			}
			slow = time.Since(began) > slowLogins
		}
		due := func(b dbsqlc.GetLatestBuildRow) bool { return sdk.Transition(b.Transition) == sdk.TransitionStop }
		s.automatic(ctx, w.ID, sdk.TransitionStart, sdk.ReasonAutostart, due)
	}
	return nil
}

// stopOverdue stops the workspaces whose time is over, batch by batch. Each try postpones the workspace's next one, so that
// a workspace that cannot be stopped is retried without keeping others running.
func (s *Service) stopOverdue(ctx context.Context, now time.Time) error {
	for {
		overdue, err := s.opts.DB.ListOverdueWorkspaces(ctx, now)
		if err != nil {
			return fmt.Errorf("list overdue workspaces: %w", err)
		}
		for _, w := range overdue {
			due := func(b dbsqlc.GetLatestBuildRow) bool {
				if sdk.Transition(b.Transition) == sdk.TransitionStop {
					return sdk.BuildReason(b.Reason) == sdk.ReasonAutostop && sdk.JobStatus(b.JobStatus) == sdk.JobFailed
				}
				return sdk.Transition(b.Transition) == sdk.TransitionStart && b.Deadline != nil && !b.Deadline.After(now)
			}
			s.automatic(ctx, w.ID, sdk.TransitionStop, sdk.ReasonAutostop, due)
			next, err := s.opts.DB.PostponeAutostop(ctx, dbsqlc.PostponeAutostopParams{ID: w.ID, At: now})
			if err != nil {
				return fmt.Errorf("postpone next automatic stop: %w", err)
			}
			if next.AutostopTries > 1 {
				s.log.WarnContext(ctx, "retrying autostop", "workspace", w.ID, "try", next.AutostopTries, "next", next.AutostopAfter)
			}
		}
		if len(overdue) == 0 {
			return nil
		}
	}
}

// startDue reports whether the schedule was due between the stop and now, and not too long ago.
func startDue(now time.Time, text string, stopped time.Time) bool {
	schedule, err := parseSchedule(text)
	if err != nil {
		return false
	}
	since := now.Add(-lateStart)
	if stopped.After(since) {
		since = stopped
	}
	return !schedule.Next(since).After(now)
}

// automatic makes a build for the owner, if it is still due once the workspace is locked. It logs an error, and the next
// round tries again: the owner has to resolve the cause.
func (s *Service) automatic(ctx context.Context, id uuid.UUID, transition sdk.Transition, reason sdk.BuildReason, due func(dbsqlc.GetLatestBuildRow) bool) {
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		w, err := q.LockWorkspace(ctx, id)
		if err != nil {
			return err
		}
		latest, err := q.GetLatestBuild(ctx, id)
		if err != nil || w.DeletedAt != nil || !sdk.JobStatus(latest.JobStatus).Ended() || !due(latest) {
			return err
		}
		_, err = s.build(ctx, q, w, buildRequest{transition: transition, initiator: w.OwnerID, reason: reason, priority: priorityAutomatic})
		return err
	})
	switch {
	case err == nil:
	case fault.CodeOf(err) == fault.Internal:
		s.log.ErrorContext(ctx, "cannot create scheduled build", "workspace", id, "reason", reason, "err", err)
	default:
		s.log.InfoContext(ctx, "cannot create scheduled build", "workspace", id, "reason", reason, "err", err)
	}
}
