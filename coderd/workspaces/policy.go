package workspaces

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// millis converts stored milliseconds.
func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// rules returns a template's policy as package policy knows it.
func rules(defaultTTL int64, p dbsqlc.TemplatePolicy) policy.Template {
	return policy.Template{
		DefaultTTL: time.Duration(defaultTTL) * time.Second, MaxLifetime: millis(p.MaxTtlMs),
		Notify: millis(p.NotifyMs), FailureTTL: millis(p.FailureTtlMs),
		Dormant: millis(p.DormantMs), Delete: millis(p.DeleteMs), AutostartDays: policy.Days(p.AutostartDays),
		AutostopDays:  policy.Days(p.AutostopDays),
		AutostopWeeks: int(p.AutostopWeeks), AllowAutostart: p.AllowAutostart, AllowAutostop: p.AllowAutostop,
	}
}

// facts returns what policy decides from, with the row.
func (s *Service) facts(row dbsqlc.ListPolicyFactsRow) policy.Facts {
	f := policy.Facts{
		Template: rules(row.DefaultTtlSeconds, row.TemplatePolicy),
		Quiet:    s.opts.QuietHours,
		Workspace: policy.Workspace{
			LastUsed: row.LastUsedAt, DormantAt: row.DormantAt, OwnerSuspended: row.OwnerSuspended,
			RetryAt: row.RetryAt,
		},
		Build: policy.Build{
			Transition: sdk.Transition(row.Transition), Reason: sdk.BuildReason(row.Reason),
			Status:   sdk.JobStatus(row.LatestStatus),
			Deadline: row.Deadline, RulesAt: row.BoundedAt, Extensions: int(row.Extensions),
			Bumped: row.BumpedAt != nil, ExtendedAt: row.ExtendedAt, StartsSince: row.StartsSince,
			Bounds: policy.Bounds{
				TTL: millis(row.TtlMs), TTLFrom: policy.TTLSource(row.TtlFrom), Max: row.MaxDeadline,
				MaxFrom: policy.MaxSource(row.MaxFrom),
			},
		},
		RulesAt: row.BoundsChangedAt,
	}
	if row.AutostartSchedule != nil {
		f.Workspace.Schedule = *row.AutostartSchedule
	}
	if row.TtlSeconds != nil {
		f.Workspace.TTL = time.Duration(*row.TtlSeconds) * time.Second
	}
	if row.LatestEndedAt != nil {
		f.Build.EndedAt = *row.LatestEndedAt
	}
	if row.QuietHours != "" && s.opts.CustomQuietHours {
		if own, err := policy.ParseQuietHours(row.QuietHours); err == nil { // the route refuses others
			f.Quiet, f.Quiet.Own = own, true
		}
	}
	return f
}

// factsOf reads the facts of one workspace.
func (s *Service) factsOf(
	ctx context.Context, q *dbsqlc.Queries, id uuid.UUID,
) (dbsqlc.ListPolicyFactsRow, policy.Facts, error) {
	rows, err := q.ListPolicyFacts(ctx, []uuid.UUID{id})
	if err != nil {
		return dbsqlc.ListPolicyFactsRow{}, policy.Facts{}, fmt.Errorf("read policy: %w", err)
	}
	if len(rows) == 0 {
		return dbsqlc.ListPolicyFactsRow{}, policy.Facts{}, fmt.Errorf("read policy: workspace %s has no build", id)
	}
	return rows[0], s.facts(rows[0]), nil
}

// storeBounds writes a running build's bounds and deadline.
func storeBounds(
	ctx context.Context, q *dbsqlc.Queries, build uuid.UUID, f policy.Facts, b policy.Bounds, deadline *time.Time,
) error {
	if err := q.SetBuildBounds(ctx, dbsqlc.SetBuildBoundsParams{
		ID: build, Deadline: deadline, MaxDeadline: b.Max, TtlMs: b.TTL.Milliseconds(), TtlFrom: string(b.TTLFrom),
		MaxFrom: string(b.MaxFrom), BoundedAt: &f.RulesAt,
	}); err != nil {
		return fmt.Errorf("store deadline: %w", err)
	}
	return nil
}

// checkAutostart refuses a schedule that the template does not allow.
func checkAutostart(p dbsqlc.TemplatePolicy, schedule string) error {
	if schedule == "" {
		return nil
	}
	if _, err := policy.ParseSchedule(schedule); err != nil {
		return err
	}
	if !p.AllowAutostart {
		return fault.New(fault.Invalid, "The template does not allow autostart.").
			WithField("schedule", "cannot be set for workspaces of this template")
	}
	return nil
}

// checkTTL refuses a time to live that the template does not allow. seconds is nil for none.
func checkTTL(defaultTTL int64, p dbsqlc.TemplatePolicy, seconds *int64) error {
	refuse := func(detail string) error {
		return fault.New(fault.Invalid, "The template does not allow this autostop duration.").
			WithField("ttl_ms", detail)
	}
	own := int64(0)
	if seconds != nil {
		own = *seconds
	}
	if !p.AllowAutostop && own != defaultTTL {
		return refuse("users of this template cannot change it: it is always " + (time.Duration(defaultTTL) * time.Second).String())
	}
	if p.MaxTtlMs > 0 && own*1000 > p.MaxTtlMs {
		return refuse("must be at most " + millis(p.MaxTtlMs).String() + ", the template's maximum")
	}
	return nil
}

// showPolicy adds to a workspace's JSON what policy says about it.
func (s *Service) showPolicy(now time.Time, ws *sdk.Workspace, row dbsqlc.ListPolicyFactsRow) {
	f := s.facts(row)
	ws.TemplateAllowUserCancelWorkspaceJobs = row.TemplatePolicy.AllowCancel
	if ws.IsPrebuild {
		return
	}
	ws.DormantAt, ws.DeletingAt = row.DormantAt, policy.DeletingAt(row.DormantAt, f.Template.Delete)
	if !f.Template.AllowAutostop {
		ws.TTLMillis = nil
		if ms := f.Template.DefaultTTL.Milliseconds(); ms > 0 {
			ws.TTLMillis = &ms
		}
	}
	if row.DeletedAt != nil {
		ws.DeletingAt = nil
		return
	}
	for _, c := range f.Consequences(now) {
		shown := sdk.ScheduledConsequence{Action: c.Action, Explanation: c.Sentence(now)}
		if at := c.At; !at.IsZero() {
			shown.At = &at
			if announce := c.AnnounceAt; !announce.IsZero() {
				shown.AnnounceAt = &announce
			}
			if c.Action == sdk.ScheduledStart && ws.NextStartAt == nil {
				ws.NextStartAt = &at
			}
		}
		ws.Consequences = append(ws.Consequences, shown)
	}
}
