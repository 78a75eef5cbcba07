package templates

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// maxPeriod bounds every duration of a template's policy.
	maxPeriod = 10 * 365 * 24 * time.Hour
	// maxWeeks bounds the weeks between required stops.
	maxWeeks = 16
)

// setPolicy stores the settings that a request names, and returns which changed. defaultTTL is the template's default
// time to live after the change, in seconds.
func setPolicy(
	ctx context.Context, q *dbsqlc.Queries, template uuid.UUID, defaultTTL int64, req sdk.TemplatePolicy,
) (audit.Diff, error) {
	old, err := q.GetTemplatePolicy(ctx, template)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	p, err := changedPolicy(old, defaultTTL, req)
	if err != nil {
		return nil, err
	}
	if err := q.UpdateTemplatePolicy(ctx, p); err != nil {
		return nil, fmt.Errorf("store policy: %w", err)
	}
	after, err := q.GetTemplatePolicy(ctx, template)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	changed := audit.Compare(old, after)
	delete(changed, "bounds_changed_at") // follows from the others
	return changed, nil
}

// changedPolicy applies a request to a policy. Its error is a fault that names every wrong setting.
func changedPolicy(
	old dbsqlc.TemplatePolicy, defaultTTL int64, req sdk.TemplatePolicy,
) (dbsqlc.UpdateTemplatePolicyParams, error) {
	refused := fault.New(fault.Invalid, "The template's settings are invalid.")
	period := func(field string, value *int64, unchanged int64) int64 {
		if value == nil {
			return unchanged
		}
		if *value < 0 || *value > maxPeriod.Milliseconds() {
			refused.WithField(field, "must be from 0 to ten years, in milliseconds")
		}
		return *value
	}
	// two returns the value of a setting with two names.
	two := func(a, b string, x, y *int64, unchanged int64) int64 {
		if x != nil && y != nil && *x != *y {
			refused.WithField(a, "differs from "+b+", which is the same setting")
		}
		if x == nil {
			a, x = b, y
		}
		return period(a, x, unchanged)
	}
	p := dbsqlc.UpdateTemplatePolicyParams{
		TemplateID:     old.TemplateID,
		MaxTtlMs:       period("max_ttl_ms", req.MaxTTLMillis, old.MaxTtlMs),
		ActivityBumpMs: period("activity_bump_ms", req.ActivityBumpMillis, old.ActivityBumpMs),
		NotifyMs:       period("time_til_autostop_notify_ms", req.AutostopNotifyMillis, old.NotifyMs),
		FailureTtlMs:   period("failure_ttl_ms", req.FailureTTLMillis, old.FailureTtlMs),
		DormantMs: two("time_til_dormant_ms", "dormant_ttl_ms", req.TimeTilDormantMillis, req.DormantTTLMillis,
			old.DormantMs),
		DeleteMs: two("time_til_dormant_autodelete_ms", "delete_ttl_ms", req.TimeTilDormantDeleteMillis,
			req.DeleteTTLMillis, old.DeleteMs),
		AutostartDays: old.AutostartDays, AutostopDays: old.AutostopDays, AutostopWeeks: old.AutostopWeeks,
		AllowAutostart: or(req.AllowUserAutostart, old.AllowAutostart),
		AllowAutostop:  or(req.AllowUserAutostop, old.AllowAutostop),
		AllowCancel:    or(req.AllowUserCancelWorkspaceJobs, old.AllowCancel),
		AllowReplacing: or(req.AllowReplacingResources, old.AllowReplacing),
	}
	days := func(field string, names []string) int16 {
		d, err := policy.ParseDays(field, names)
		if f := fault.As(err); f != nil {
			refused.Fields = append(refused.Fields, f.Fields...)
		}
		return int16(d)
	}
	if r := req.AutostartRequirement; r != nil && r.DaysOfWeek != nil { // null leaves the days as they are
		p.AutostartDays = days("autostart_requirement", r.DaysOfWeek)
	}
	if r := req.AutostopRequirement; r != nil {
		p.AutostopDays = days("autostop_requirement", r.DaysOfWeek)
		if r.Weeks < 0 || r.Weeks > maxWeeks {
			refused.WithField("autostop_requirement", fmt.Sprintf("weeks must be from 1 to %d", maxWeeks))
		}
		p.AutostopWeeks = int16(min(max(r.Weeks, 1), maxWeeks))
	}
	if p.MaxTtlMs > 0 && p.MaxTtlMs < policy.MinTTL.Milliseconds() {
		refused.WithField("max_ttl_ms", "must be 0 or at least a minute")
	} else if p.MaxTtlMs > 0 && defaultTTL*1000 > p.MaxTtlMs {
		refused.WithField("max_ttl_ms", "must not be less than default_ttl_ms")
	}
	if len(refused.Fields) > 0 {
		return p, refused
	}
	return p, nil
}

// restartClocks counts the template's workspaces as used or dormant since now, if the request asks for it. It must run
// before setPolicy, because it locks the workspaces' rows.
func restartClocks(ctx context.Context, q *dbsqlc.Queries, template uuid.UUID, req sdk.UpdateTemplateRequest) error {
	if or(req.UpdateWorkspaceLastUsedAt, false) {
		if err := q.TouchTemplateWorkspaces(ctx, template); err != nil {
			return fmt.Errorf("count workspaces as used: %w", err)
		}
	}
	if or(req.UpdateWorkspaceDormantAt, false) {
		if err := q.RestartTemplateDormancy(ctx, template); err != nil {
			return fmt.Errorf("restart dormancy: %w", err)
		}
	}
	return nil
}

// showPolicy adds a policy to a template's JSON.
func showPolicy(t *sdk.Template, p dbsqlc.TemplatePolicy) {
	t.MaxTTLMillis, t.ActivityBumpMillis, t.AutostopNotifyMillis = p.MaxTtlMs, p.ActivityBumpMs, p.NotifyMs
	t.FailureTTLMillis, t.TimeTilDormantMillis, t.TimeTilDormantDeleteMillis = p.FailureTtlMs, p.DormantMs, p.DeleteMs
	t.AllowUserAutostart, t.AllowUserAutostop, t.AllowUserCancelWorkspaceJobs = p.AllowAutostart, p.AllowAutostop, p.AllowCancel
	t.AllowReplacingResources = p.AllowReplacing
	t.AutostartRequirement = sdk.AutostartRequirement{DaysOfWeek: policy.Days(p.AutostartDays).Names()}
	t.AutostopRequirement = sdk.AutostopRequirement{
		DaysOfWeek: policy.Days(p.AutostopDays).Names(), Weeks: int64(p.AutostopWeeks),
	}
}
