package workspaces

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// scheduleEvery is the interval at which the clock is compared with what is due.
	scheduleEvery = 30 * time.Second
	// scheduleBatch is how many due workspaces one query returns.
	scheduleBatch = 200
	// slowLogins is how long renewing one owner's logins may take before the rest of a round renews no more logins.
	slowLogins = 5 * time.Second
)

// Announcement tells a workspace's owner what policy does.
type Announcement struct {
	Action sdk.ScheduledAction
	Done   bool // false: it happens at At unless something changes
	At     time.Time
	// Explanation is a sentence with the time and the reason.
	Explanation                     string
	UserID, WorkspaceID, TemplateID uuid.UUID
	WorkspaceName                   string
}

// Announcer carries announcements to users. It runs in the transaction that records the announcement or the action, so
// it must write with q or not at all. If it returns an error, the transaction is rolled back and tried again later.
type Announcer interface {
	Announce(ctx context.Context, q *dbsqlc.Queries, a Announcement) error
}

// Start starts the loop that carries out what policy decides. It does not block.
func (s *Service) Start() {
	s.stopped = make(chan struct{})
	go func() {
		ctx := s.life
		defer close(s.stopped)
		for {
			// Servers should not all look at once.
			timer := time.NewTimer(scheduleEvery/2 + rand.N(scheduleEvery/2))
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			case <-s.taken: // replace the prebuilt workspace that a user got
			}
			timer.Stop()
			if err := s.RunSchedule(ctx, s.opts.Now()); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "cannot carry out schedules, trying again", "err", err)
			}
		}
	}()
}

// Stop ends watches and the loop, and waits for the loop. It is idempotent, and works before Start.
func (s *Service) Stop() {
	s.stop()
	if s.stopped != nil {
		<-s.stopped
	}
}

// RunSchedule does what is due at the given time. Several servers may call it at once: each workspace is claimed by its
// row. Those that wait longest come first. A workspace whose action fails is postponed, later each time, so that it
// does not keep others waiting. Prebuilt workspaces come last.
func (s *Service) RunSchedule(ctx context.Context, now time.Time) error {
	return errors.Join(s.runPolicies(ctx, now), s.reconcile(ctx, now))
}

func (s *Service) runPolicies(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleEvery)
	defer cancel()
	slow := false
	for {
		due, err := s.opts.DB.ListPolicyDue(ctx, dbsqlc.ListPolicyDueParams{At: now, MaxRows: scheduleBatch})
		if err != nil {
			return fmt.Errorf("list due workspaces: %w", err)
		}
		progress := false
		for _, w := range due {
			claimed, err := s.look(ctx, w.WorkspaceID, w.OwnerID, now, &slow)
			if err != nil {
				return err
			}
			progress = progress || claimed
		}
		if len(due) < scheduleBatch || !progress {
			return nil
		}
	}
}

// errStale asks for the owner's logins to be renewed, which takes requests to other services and so happens outside of
// the transaction.
var errStale = errors.New("the owner's logins may have expired")

// look claims a workspace, does what is due and stores when to look again. It reports false if another server has the
// workspace.
func (s *Service) look(ctx context.Context, id, owner uuid.UUID, now time.Time, slow *bool) (claimed bool, err error) {
	fresh := *slow // a provider that does not answer must not keep every workspace from starting
	for {
		err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
			w, err := q.LockDuePolicy(ctx, dbsqlc.LockDuePolicyParams{ID: id, At: now})
			if claimed = err == nil; database.IsNotFound(err) {
				return nil
			}
			if err != nil {
				return err
			}
			return s.decide(ctx, q, w, now, fresh)
		})
		if !errors.Is(err, errStale) {
			break
		}
		began := time.Now()
		if err := s.opts.ExternalAuth.Freshen(ctx, owner); err != nil {
			return false, err
		}
		fresh, *slow = true, time.Since(began) > slowLogins
	}
	if err == nil || ctx.Err() != nil {
		return claimed, ctx.Err()
	}
	return true, s.postpone(ctx, id, now, err)
}

// postpone logs why the action of a workspace was refused and tries it again later. The owner has to resolve most
// causes.
func (s *Service) postpone(ctx context.Context, id uuid.UUID, now time.Time, cause error) error {
	var next dbsqlc.PostponePolicyRow
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) (err error) {
		if next, err = q.PostponePolicy(ctx, dbsqlc.PostponePolicyParams{WorkspaceID: id, At: now}); err != nil {
			return err
		}
		return q.SetPolicyLook(ctx, dbsqlc.SetPolicyLookParams{WorkspaceID: id, LookAt: next.RetryAt})
	})
	if err != nil {
		return fmt.Errorf("postpone next automatic build: %w", err)
	}
	if fault.CodeOf(cause) == fault.Internal {
		s.log.ErrorContext(ctx, "cannot carry out schedule", "workspace", id, "try", next.Tries, "next", next.RetryAt,
			"err", cause)
	} else {
		s.log.InfoContext(ctx, "cannot carry out schedule", "workspace", id, "try", next.Tries, "next", next.RetryAt,
			"err", cause)
	}
	return nil
}

// decide does what is due for a workspace whose row is locked, announces what comes soon, and stores when to look
// again.
func (s *Service) decide(ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, now time.Time, fresh bool) error {
	row, f, err := s.factsOf(ctx, q, w.ID)
	if err != nil {
		return err
	}
	if b, deadline, changed := f.Rebound(now); changed {
		if err := storeBounds(ctx, q, row.BuildID, f, b, deadline); err != nil {
			return err
		}
		f.Build.Bounds, f.Build.Deadline, f.Build.RulesAt = b, deadline, &f.RulesAt
	}
	if deadline, changed := f.Counted(now); changed {
		if err := storeBounds(ctx, q, row.BuildID, f, f.Build.Bounds, deadline); err != nil {
			return err
		}
		if err := q.NotifyWorkspace(ctx, w.ID); err != nil {
			return fmt.Errorf("notify watchers: %w", err)
		}
		f.Build.Deadline = deadline
	}
	consequences := f.Consequences(now)
	if len(consequences) > 0 && consequences[0].Due(now) {
		c := consequences[0]
		if c.Transition == sdk.TransitionStart && !fresh {
			return errStale
		}
		if err := s.carryOut(ctx, q, w, f, c, now); err != nil {
			return err
		}
		next := now // a change without a build: what follows from it may be due as well
		if c.Transition != "" {
			next = now.Add(24 * time.Hour) // the end of the build wakes the loop
		}
		return q.SetPolicyLook(ctx, dbsqlc.SetPolicyLookParams{WorkspaceID: w.ID, LookAt: next})
	}
	for _, c := range consequences {
		if !c.Announced(now) {
			continue
		}
		n, err := q.NoteAnnouncement(ctx, dbsqlc.NoteAnnouncementParams{
			WorkspaceID: w.ID, Event: string(c.Action), DueAt: c.At,
		})
		if err != nil {
			return fmt.Errorf("record announcement: %w", err)
		}
		if n > 0 {
			if err := s.announce(ctx, q, w, f, c, false, now); err != nil {
				return err
			}
		}
	}
	return q.SetPolicyLook(ctx, dbsqlc.SetPolicyLookParams{
		WorkspaceID: w.ID, LookAt: policy.NextLook(consequences, now),
	})
}

// carryOut makes a consequence real: it marks the workspace dormant, or makes the build, or both.
func (s *Service) carryOut(
	ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, f policy.Facts, c policy.Consequence, now time.Time,
) error {
	if c.Action == sdk.ScheduledDormancy {
		if err := q.SetDormant(ctx, dbsqlc.SetDormantParams{ID: w.ID, DormantAt: &now}); err != nil {
			return fmt.Errorf("make workspace dormant: %w", err)
		}
		after, err := q.GetWorkspace(ctx, w.ID)
		if err != nil {
			return fmt.Errorf("read workspace: %w", err)
		}
		entry := audit.OfWorkspace(w, after)
		entry.Action, entry.Kind, entry.By = audit.Write, audit.Workspace, audit.ByServer
		if err := s.record(ctx, q, entry, w); err != nil {
			return err
		}
		if err := q.NotifyWorkspace(ctx, w.ID); err != nil {
			return fmt.Errorf("notify watchers: %w", err)
		}
	}
	if c.Transition != "" {
		id, err := s.build(ctx, q, w, buildRequest{
			transition: c.Transition, initiator: w.OwnerID, reason: c.Reason, priority: priorityAutomatic,
			because: c.Because,
		})
		if err != nil {
			return err
		}
		explained := dbsqlc.ExplainBuildParams{ID: id, Explanation: c.Past(now)}
		if c.Reason == sdk.ReasonAutostop {
			explained.StartsSince = f.StartsSince()
		}
		if err := q.ExplainBuild(ctx, explained); err != nil {
			return fmt.Errorf("explain build: %w", err)
		}
		next, err := q.PostponePolicy(ctx, dbsqlc.PostponePolicyParams{WorkspaceID: w.ID, At: now})
		if err != nil {
			return fmt.Errorf("postpone next automatic build: %w", err)
		}
		if next.Tries > 1 {
			s.log.WarnContext(ctx, "retrying automatic build", "workspace", w.ID, "reason", c.Reason, "try", next.Tries,
				"next", next.RetryAt)
		}
	}
	return s.announce(ctx, q, w, f, c, true, now)
}

func (s *Service) announce(
	ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, f policy.Facts, c policy.Consequence, done bool,
	now time.Time,
) error {
	if s.opts.Announcer == nil {
		return nil
	}
	a := Announcement{
		Action: c.Action, Done: done, At: c.At, Explanation: c.Sentence(now), UserID: w.OwnerID, WorkspaceID: w.ID,
		TemplateID: w.TemplateID, WorkspaceName: w.Name,
	}
	if done {
		a.At, a.Explanation = now, c.Past(now)
	}
	if next := f.AfterDormancy(now); done && c.Action == sdk.ScheduledDormancy && next != "" {
		a.Explanation += " " + next
	}
	if err := s.opts.Announcer.Announce(ctx, q, a); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	return nil
}
