package sdk

import (
	"context"
	"net/url"
	"time"

	"github.com/google/uuid"
)

// Insights report how templates are used, from the connection log: they reach back as far as it does.

// DAUsResponse has the number of users who were connected to workspaces, by day.
type DAUsResponse struct {
	TZHourOffset int            `json:"tz_hour_offset"`
	Entries      List[DAUEntry] `json:"entries"` // oldest first, without gaps
}

// DAUEntry is one day.
type DAUEntry struct {
	Date   string `json:"date"` // 2026-11-23, in the time zone of the request
	Amount int64  `json:"amount"`
}

// UserStatusCountsResponse has the number of users by status, on each of the last days: oldest first, without gaps.
type UserStatusCountsResponse struct {
	StatusCounts Map[List[UserStatusCount]] `json:"status_counts"`
}

// UserStatusCount is how many users had a status at the end of a day, or have it now.
type UserStatusCount struct {
	Date  time.Time `json:"date"` // when the day began, in the time zone of the request
	Count int64     `json:"count"`
}

// UserStatusCounts returns the number of users by status on each of the last 60 days, in a time zone by its IANA name;
// "" means UTC.
func (c *Client) UserStatusCounts(ctx context.Context, zone string) (UserStatusCountsResponse, error) {
	return get[UserStatusCountsResponse](ctx, c, "insights/user-status-counts?"+url.Values{"timezone": {zone}}.Encode())
}

// UserActivityInsightsResponse has how long users were connected to workspaces.
type UserActivityInsightsResponse struct {
	Report UserActivityReport `json:"report"`
}

type UserActivityReport struct {
	StartTime   time.Time          `json:"start_time"`
	EndTime     time.Time          `json:"end_time"`
	TemplateIDs List[uuid.UUID]    `json:"template_ids"`
	Users       List[UserActivity] `json:"users"`
}

// UserActivity is one user's. Connections at the same time count once.
type UserActivity struct {
	TemplateIDs List[uuid.UUID] `json:"template_ids"`
	UserID      uuid.UUID       `json:"user_id"`
	Username    string          `json:"username"`
	AvatarURL   string          `json:"avatar_url"`
	Seconds     int64           `json:"seconds"`
}

// UserLatencyInsightsResponse has the round trips between users and the workspaces that they connected to.
type UserLatencyInsightsResponse struct {
	Report UserLatencyReport `json:"report"`
}

type UserLatencyReport struct {
	StartTime   time.Time         `json:"start_time"`
	EndTime     time.Time         `json:"end_time"`
	TemplateIDs List[uuid.UUID]   `json:"template_ids"`
	Users       List[UserLatency] `json:"users"` // by name; without those whose round trips are not known
}

// UserLatency is one user's: of each connection, the median counts once.
type UserLatency struct {
	TemplateIDs   List[uuid.UUID]    `json:"template_ids"`
	UserID        uuid.UUID          `json:"user_id"`
	Username      string             `json:"username"`
	AvatarURL     string             `json:"avatar_url"`
	LatencyMillis LatencyPercentiles `json:"latency_ms"`
}

// LatencyPercentiles has round trips in milliseconds.
type LatencyPercentiles struct {
	P50 float64 `json:"p50"` // of half of the connections it is at most this
	P95 float64 `json:"p95"`
}

// TemplateInsightsResponse has what templates were used for. A part that was not asked for is null.
type TemplateInsightsResponse struct {
	Report          *TemplateReport          `json:"report,omitempty"`
	IntervalReports []TemplateIntervalReport `json:"interval_reports,omitempty"` // oldest first, without gaps
}

type TemplateReport struct {
	StartTime   time.Time       `json:"start_time"`
	EndTime     time.Time       `json:"end_time"`
	TemplateIDs List[uuid.UUID] `json:"template_ids"`
	ActiveUsers int64           `json:"active_users"`
	AppsUsage   List[AppUsage]  `json:"apps_usage"`
	// ParametersUsage is always empty: values of parameters are not counted.
	ParametersUsage List[any] `json:"parameters_usage"`
}

// AppUsage is how long users were connected to one app, or in one of the ways that every workspace has.
type AppUsage struct {
	TemplateIDs List[uuid.UUID] `json:"template_ids"`
	Type        AppUsageType    `json:"type"`
	DisplayName string          `json:"display_name"`
	Slug        string          `json:"slug"`
	Icon        string          `json:"icon"`
	Seconds     int64           `json:"seconds"`
	TimesUsed   int64           `json:"times_used"`
}

// AppUsageType tells apps of templates from what every workspace has.
type AppUsageType string

const (
	AppUsageBuiltin  AppUsageType = "builtin"
	AppUsageTemplate AppUsageType = "app"
)

// InsightsInterval is the length of the parts of a report.
type InsightsInterval string

const (
	IntervalDay  InsightsInterval = "day"
	IntervalWeek InsightsInterval = "week"
)

type TemplateIntervalReport struct {
	StartTime   time.Time        `json:"start_time"`
	EndTime     time.Time        `json:"end_time"`
	TemplateIDs List[uuid.UUID]  `json:"template_ids"`
	Interval    InsightsInterval `json:"interval"`
	ActiveUsers int64            `json:"active_users"`
}
