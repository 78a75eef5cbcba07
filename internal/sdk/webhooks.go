package sdk

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// LifecycleTypes are the types of lifecycle events. A webhook also chooses all of a kind with "KIND.*", and all with
// "*".
var LifecycleTypes = []string{
	"workspace.created", "workspace.updated", "workspace.transferred", "workspace.deleted",
	"build.created", "build.succeeded", "build.failed", "build.canceled",
	"agent.connected", "agent.disconnected", "agent.starting", "agent.start_timeout", "agent.start_error", "agent.ready",
	"agent.shutting_down", "agent.shutdown_timeout", "agent.shutdown_error", "agent.off",
	"user.created", "user.updated", "user.suspended", "user.activated", "user.deleted",
	"template.created", "template.updated", "template.deleted",
}

// Formats of what a webhook gets.
const (
	WebhookStandard = "standard" // LifecycleEvent
	WebhookSlack    = "slack"    // a message for an incoming webhook of Slack
	WebhookTeams    = "teams"    // an adaptive card for a workflow of Microsoft Teams
)

// LifecycleEvent is something that happened, as webhooks get it and the stream has it.
type LifecycleEvent struct {
	ID        uuid.UUID     `json:"id"`       // the same for each repetition
	Sequence  int64         `json:"sequence"` // grows; the stream resumes after it
	Type      string        `json:"type"`
	Timestamp time.Time     `json:"timestamp"`
	Data      LifecycleData `json:"data"`
}

// LifecycleData are the facts of an event: those that its kind has. None is a secret.
type LifecycleData struct {
	WorkspaceID    *uuid.UUID `json:"workspace_id,omitempty"`
	WorkspaceName  string     `json:"workspace_name,omitempty"`
	OwnerID        *uuid.UUID `json:"owner_id,omitempty"`
	OwnerName      string     `json:"owner_name,omitempty"`
	TemplateID     *uuid.UUID `json:"template_id,omitempty"`
	TemplateName   string     `json:"template_name,omitempty"`
	OrganizationID *uuid.UUID `json:"organization_id,omitempty"`
	BuildID        *uuid.UUID `json:"build_id,omitempty"`
	BuildNumber    int32      `json:"build_number,omitempty"`
	Transition     Transition `json:"transition,omitempty"`
	Reason         string     `json:"reason,omitempty"`
	AgentID        *uuid.UUID `json:"agent_id,omitempty"`
	AgentName      string     `json:"agent_name,omitempty"`
	LifecycleState string     `json:"lifecycle_state,omitempty"`
	UserID         *uuid.UUID `json:"user_id,omitempty"`
	Username       string     `json:"username,omitempty"`
	Webhook        string     `json:"webhook,omitempty"` // of a test
	// Actor did it. The stream has it for readers of the audit log only, except of builds.
	Actor   string     `json:"actor,omitempty"`
	ActorID *uuid.UUID `json:"actor_id,omitempty"`
	// Changed names the fields that an update changed, as the audit log calls them.
	Changed []string `json:"changed,omitempty"`
}

// Webhook is where events are posted. Its URL is a secret, of which only the origin is shown.
type Webhook struct {
	ID             uuid.UUID    `json:"id"`
	Name           string       `json:"name"`
	Origin         string       `json:"origin"` // scheme and host of the URL
	Events         List[string] `json:"events"`
	Format         string       `json:"format"`
	CreatedAt      time.Time    `json:"created_at"`
	FailingSince   *time.Time   `json:"failing_since"` // nil: the latest attempt succeeded
	DisabledAt     *time.Time   `json:"disabled_at"`   // nil: enabled
	DisabledReason string       `json:"disabled_reason"`
}

// CreateWebhookRequest adds a webhook.
type CreateWebhookRequest struct {
	Name   string       `json:"name"`
	URL    string       `json:"url"`
	Events List[string] `json:"events"`           // empty: all
	Format string       `json:"format,omitempty"` // empty: standard
}

// CreateWebhookResponse is a new webhook with its signing secret, which is not shown again.
type CreateWebhookResponse struct {
	Webhook Webhook `json:"webhook"`
	Secret  string  `json:"secret"`
}

// UpdateWebhookRequest changes what it names.
type UpdateWebhookRequest struct {
	Name    *string       `json:"name,omitempty"`
	URL     *string       `json:"url,omitempty"`
	Events  *List[string] `json:"events,omitempty"`
	Format  *string       `json:"format,omitempty"`
	Enabled *bool         `json:"enabled,omitempty"`
}

// ReplaceWebhookSecretRequest replaces a webhook's signing secret. Messages are also signed with the old one for
// OverlapSeconds, a week at most; nil means a day.
type ReplaceWebhookSecretRequest struct {
	OverlapSeconds *int64 `json:"overlap_seconds,omitempty"`
}

// WebhookDelivery is the delivery of an event to a webhook.
type WebhookDelivery struct {
	ID             int64      `json:"id"`
	EventID        uuid.UUID  `json:"event_id"`
	Sequence       int64      `json:"sequence"`
	Type           string     `json:"type"`
	Status         string     `json:"status"` // pending, delivered or failed
	Attempts       int32      `json:"attempts"`
	Replay         bool       `json:"replay"`
	ResponseStatus int32      `json:"response_status"` // of the latest attempt; 0: no answer
	Excerpt        string     `json:"excerpt"`         // the beginning of the latest answer
	Error          string     `json:"error"`
	CreatedAt      time.Time  `json:"created_at"`
	NextAt         *time.Time `json:"next_at"` // of the next attempt; nil: there is none
	FinishedAt     *time.Time `json:"finished_at"`
}

// ReplayWebhookRequest delivers again: one delivery, or the events from Since to Until.
type ReplayWebhookRequest struct {
	Delivery int64      `json:"delivery,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Until    *time.Time `json:"until,omitempty"` // nil: now
}

// ReplayWebhookResponse tells how many deliveries were added.
type ReplayWebhookResponse struct {
	Count int64 `json:"count"`
}

// Webhooks lists the webhooks by name.
func (c *Client) Webhooks(ctx context.Context) ([]Webhook, error) {
	return get[[]Webhook](ctx, c, "webhooks")
}

func (c *Client) CreateWebhook(ctx context.Context, req CreateWebhookRequest) (CreateWebhookResponse, error) {
	return send[CreateWebhookResponse](ctx, c, http.MethodPost, "webhooks", req)
}

func (c *Client) UpdateWebhook(ctx context.Context, id uuid.UUID, req UpdateWebhookRequest) (Webhook, error) {
	return send[Webhook](ctx, c, http.MethodPatch, "webhooks/"+id.String(), req)
}

// ReplaceWebhookSecret gives a webhook another signing secret, which is not shown again.
func (c *Client) ReplaceWebhookSecret(
	ctx context.Context, id uuid.UUID, req ReplaceWebhookSecretRequest,
) (CreateWebhookResponse, error) {
	return send[CreateWebhookResponse](ctx, c, http.MethodPost, "webhooks/"+id.String()+"/secret", req)
}

func (c *Client) DeleteWebhook(ctx context.Context, id uuid.UUID) error {
	return c.do(ctx, http.MethodDelete, "webhooks/"+id.String(), nil, nil)
}

// WebhookDeliveries lists deliveries, newest first: at most limit, before the one with an id, or the newest if that is
// 0.
func (c *Client) WebhookDeliveries(
	ctx context.Context, id uuid.UUID, limit int, before int64,
) ([]WebhookDelivery, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}, "before": {strconv.FormatInt(before, 10)}}
	return get[[]WebhookDelivery](ctx, c, "webhooks/"+id.String()+"/deliveries?"+query.Encode())
}

// TestWebhook sends a webhook an event of the type webhook.test.
func (c *Client) TestWebhook(ctx context.Context, id uuid.UUID) error {
	return c.do(ctx, http.MethodPost, "webhooks/"+id.String()+"/test", nil, nil)
}

func (c *Client) ReplayWebhook(
	ctx context.Context, id uuid.UUID, req ReplayWebhookRequest,
) (ReplayWebhookResponse, error) {
	return send[ReplayWebhookResponse](ctx, c, http.MethodPost, "webhooks/"+id.String()+"/replay", req)
}
