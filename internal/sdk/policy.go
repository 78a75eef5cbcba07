package sdk

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// TemplatePolicy holds the settings by which a template schedules and cleans up its workspaces, as requests change
// them: nil leaves a setting as it is. Durations are in milliseconds and 0 turns a rule off. Two settings have another
// name when a template is created, and are accepted under both.
type TemplatePolicy struct {
	MaxTTLMillis                 *int64                `json:"max_ttl_ms,omitempty"`
	ActivityBumpMillis           *int64                `json:"activity_bump_ms,omitempty"`
	AutostopNotifyMillis         *int64                `json:"time_til_autostop_notify_ms,omitempty"`
	AutostopRequirement          *AutostopRequirement  `json:"autostop_requirement,omitempty"`
	AutostartRequirement         *AutostartRequirement `json:"autostart_requirement,omitempty"`
	AllowUserAutostart           *bool                 `json:"allow_user_autostart,omitempty"`
	AllowUserAutostop            *bool                 `json:"allow_user_autostop,omitempty"`
	AllowUserCancelWorkspaceJobs *bool                 `json:"allow_user_cancel_workspace_jobs,omitempty"`
	AllowReplacingResources      *bool                 `json:"allow_replacing_resources,omitempty"`
	FailureTTLMillis             *int64                `json:"failure_ttl_ms,omitempty"`
	DormantTTLMillis             *int64                `json:"dormant_ttl_ms,omitempty"`
	TimeTilDormantMillis         *int64                `json:"time_til_dormant_ms,omitempty"`
	DeleteTTLMillis              *int64                `json:"delete_ttl_ms,omitempty"`
	TimeTilDormantDeleteMillis   *int64                `json:"time_til_dormant_autodelete_ms,omitempty"`
}

// ScheduledAction is what happens to a workspace without anyone asking.
type ScheduledAction string

const (
	ScheduledStart    ScheduledAction = "start"
	ScheduledStop     ScheduledAction = "stop"
	ScheduledDormancy ScheduledAction = "dormancy"
	ScheduledDelete   ScheduledAction = "delete"
)

// ScheduledConsequence is one thing that happens to a workspace if nothing changes, and why.
type ScheduledConsequence struct {
	Action ScheduledAction `json:"action"`
	// At is nil if the action was asked for and does not happen; the explanation says why.
	At *time.Time `json:"at"`
	// AnnounceAt is when users are told; nil for never.
	AnnounceAt  *time.Time `json:"announce_at"`
	Explanation string     `json:"explanation"` // one sentence
}

// UpdateDormancyRequest makes a workspace dormant or wakes it.
type UpdateDormancyRequest struct {
	Dormant bool `json:"dormant"`
}

// ResolveAutostartResponse reports whether the next automatic start lacks a parameter that only a person can give.
type ResolveAutostartResponse struct {
	ParameterMismatch bool `json:"parameter_mismatch"`
}

// QuietHours are when a user's quiet hours begin. Workspaces that must stop from time to time stop then.
type QuietHours struct {
	RawSchedule string    `json:"raw_schedule"` // CRON_TZ=Europe/Berlin 0 22 * * *
	UserSet     bool      `json:"user_set"`     // false: the deployment's
	UserCanSet  bool      `json:"user_can_set"`
	Time        string    `json:"time"` // HH:MM
	Timezone    string    `json:"timezone"`
	Next        time.Time `json:"next"`
}

// UpdateQuietHoursRequest sets a user's quiet hours; "" returns to the deployment's.
type UpdateQuietHoursRequest struct {
	Schedule string `json:"schedule"`
}

// UpdateDormancy makes a workspace dormant or wakes it.
func (c *Client) UpdateDormancy(ctx context.Context, id uuid.UUID, req UpdateDormancyRequest) error {
	return c.do(ctx, http.MethodPut, "workspaces/"+id.String()+"/dormant", req, nil)
}

// ResolveAutostart reports whether the next automatic start of a workspace would be refused for its parameters.
func (c *Client) ResolveAutostart(ctx context.Context, id uuid.UUID) (ResolveAutostartResponse, error) {
	return get[ResolveAutostartResponse](ctx, c, "workspaces/"+id.String()+"/resolve-autostart")
}

func (c *Client) QuietHours(ctx context.Context, user string) (QuietHours, error) {
	return get[QuietHours](ctx, c, "users/"+seg(user)+"/quiet-hours")
}

func (c *Client) UpdateQuietHours(ctx context.Context, user string, req UpdateQuietHoursRequest) (QuietHours, error) {
	return send[QuietHours](ctx, c, http.MethodPut, "users/"+seg(user)+"/quiet-hours", req)
}
