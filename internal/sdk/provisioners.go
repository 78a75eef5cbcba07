package sdk

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ProvisionerJob is one unit of work for a provisioner: a template import, a dry run or a workspace build.
type ProvisionerJob struct {
	ID               uuid.UUID              `json:"id"`
	OrganizationID   uuid.UUID              `json:"organization_id"`
	InitiatorID      uuid.UUID              `json:"initiator_id"`
	CreatedAt        time.Time              `json:"created_at"`
	StartedAt        *time.Time             `json:"started_at,omitempty"`
	CompletedAt      *time.Time             `json:"completed_at,omitempty"` // set on every job that has ended
	CanceledAt       *time.Time             `json:"canceled_at,omitempty"`
	Status           JobStatus              `json:"status"`
	Error            string                 `json:"error,omitempty"`
	ErrorCode        JobErrorCode           `json:"error_code,omitempty"`
	WorkerID         *uuid.UUID             `json:"worker_id,omitempty"`
	WorkerName       string                 `json:"worker_name,omitempty"`
	FileID           uuid.UUID              `json:"file_id"`
	Tags             Map[string]            `json:"tags"`
	QueuePosition    int                    `json:"queue_position"` // 1 is next; 0 if not waiting
	QueueSize        int                    `json:"queue_size"`
	Type             JobType                `json:"type"`
	Input            ProvisionerJobInput    `json:"input"`
	Metadata         ProvisionerJobMetadata `json:"metadata"`
	AvailableWorkers List[uuid.UUID]        `json:"available_workers,omitempty"`
	LogsOverflowed   bool                   `json:"logs_overflowed"`
	// WaitingReason is the reason why a pending job does not run: "no provisioner has environment=on_prem", or since
	// when the provisioner of a running job has been offline. It is "" if there is nothing to report.
	WaitingReason string `json:"waiting_reason,omitempty"`
	// WaitingRemedy says what to do about it. It is "" if waiting is enough.
	WaitingRemedy string `json:"waiting_remedy,omitempty"`
	// InterruptedAt is until when the stopping server of the job's provisioner waits for the job. It is nil if the
	// server is not stopping.
	InterruptedAt *time.Time `json:"interrupted_at,omitempty"`
}

// Waiting returns why a job does not run or go on, and what to do, in one line.
func (j ProvisionerJob) Waiting() string {
	return strings.TrimSpace(j.WaitingReason + " " + j.WaitingRemedy)
}

type ProvisionerJobInput struct {
	TemplateVersionID *uuid.UUID `json:"template_version_id,omitempty"`
	WorkspaceBuildID  *uuid.UUID `json:"workspace_build_id,omitempty"`
	Error             string     `json:"error,omitempty"`
}

type ProvisionerJobMetadata struct {
	TemplateVersionName string     `json:"template_version_name"`
	TemplateID          uuid.UUID  `json:"template_id"`
	TemplateName        string     `json:"template_name"`
	TemplateDisplayName string     `json:"template_display_name"`
	TemplateIcon        string     `json:"template_icon"`
	WorkspaceID         *uuid.UUID `json:"workspace_id,omitempty"`
	WorkspaceName       string     `json:"workspace_name,omitempty"`
}

// JobLog is one line of a job's log.
type JobLog struct {
	ID        int64     `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	Source    LogSource `json:"log_source"`
	Level     LogLevel  `json:"log_level"`
	Stage     string    `json:"stage"` // for people: "Planning infrastructure"
	Output    string    `json:"output"`
}

// MatchedProvisioners counts the provisioners that may take a job.
type MatchedProvisioners struct {
	Count            int        `json:"count"`
	Available        int        `json:"available"`
	MostRecentlySeen *time.Time `json:"most_recently_seen,omitempty"`
}

// ProvisionerDaemon is a provisioner that has joined.
type ProvisionerDaemon struct {
	ID             uuid.UUID         `json:"id"`
	OrganizationID uuid.UUID         `json:"organization_id"`
	KeyID          uuid.UUID         `json:"key_id"`
	KeyName        string            `json:"key_name"`
	CreatedAt      time.Time         `json:"created_at"`
	LastSeenAt     *time.Time        `json:"last_seen_at,omitempty"`
	Name           string            `json:"name"`
	Version        string            `json:"version"`
	APIVersion     string            `json:"api_version"`
	Provisioners   List[string]      `json:"provisioners"` // "terraform"
	Tags           Map[string]       `json:"tags"`
	Status         ProvisionerStatus `json:"status"`
	// Path is how the server's packets to it travel: "direct", "relayed", or "" while that is unknown.
	Path string `json:"path,omitempty"`
	// ServerID is the server that it is connected to; absent while it is offline.
	ServerID    *uuid.UUID            `json:"server_id,omitempty"`
	CurrentJob  *ProvisionerDaemonJob `json:"current_job"`
	PreviousJob *ProvisionerDaemonJob `json:"previous_job"`
}

type ProvisionerDaemonJob struct {
	ID                  uuid.UUID `json:"id"`
	Status              JobStatus `json:"status"`
	TemplateName        string    `json:"template_name"`
	TemplateIcon        string    `json:"template_icon"`
	TemplateDisplayName string    `json:"template_display_name"`
}

// Names shown in place of a key's for a daemon that joined without one: the server's own, with a user's session, with
// the pre-shared key. No key may have them.
const (
	KeyBuiltIn = "built-in"
	KeyUser    = "user-auth"
	KeyPSK     = "psk"
)

// ProvisionerKey lets provisioners join, with its tags.
type ProvisionerKey struct {
	ID             uuid.UUID   `json:"id"`
	CreatedAt      time.Time   `json:"created_at"`
	OrganizationID uuid.UUID   `json:"organization"`
	Name           string      `json:"name"`
	Tags           Map[string] `json:"tags"`
}

// ProvisionerKeyDaemons are a key and the provisioners that joined with it.
type ProvisionerKeyDaemons struct {
	Key     ProvisionerKey          `json:"key"`
	Daemons List[ProvisionerDaemon] `json:"daemons"`
}

type CreateProvisionerKeyRequest struct {
	Name string            `json:"name"`
	Tags map[string]string `json:"tags"`
}

// CreateProvisionerKeyResponse is the only answer that contains the key itself.
type CreateProvisionerKeyResponse struct {
	Key string `json:"key"`
}

// JobsQuery selects provisioner jobs, newest first. The zero value means all.
type JobsQuery struct {
	Limit, Offset int // 0: the server's own limit
	Statuses      []JobStatus
	Initiator     string // name or id of a user, or Me
}

func (c *Client) ProvisionerDaemons(ctx context.Context, organization string) ([]ProvisionerDaemon, error) {
	return c.FindProvisionerDaemons(ctx, organization, DaemonsQuery{})
}

// DaemonsQuery selects provisioners. The zero value means all.
type DaemonsQuery struct {
	Limit    int
	Statuses []string
	MaxAge   time.Duration // since they were last seen; 0: any
}

func (c *Client) FindProvisionerDaemons(
	ctx context.Context, organization string, q DaemonsQuery,
) ([]ProvisionerDaemon, error) {
	v := url.Values{}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if len(q.Statuses) > 0 {
		v.Set("status", strings.Join(q.Statuses, ","))
	}
	if q.MaxAge > 0 {
		v.Set("max_age", q.MaxAge.String())
	}
	path := "organizations/" + seg(organization) + "/provisionerdaemons"
	if len(v) > 0 {
		path += "?" + v.Encode()
	}
	return get[[]ProvisionerDaemon](ctx, c, path)
}

func (c *Client) ProvisionerJobs(ctx context.Context, organization string, q JobsQuery) ([]ProvisionerJob, error) {
	v := url.Values{}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Offset > 0 {
		v.Set("offset", strconv.Itoa(q.Offset))
	}
	if len(q.Statuses) > 0 {
		names := make([]string, len(q.Statuses))
		for i, s := range q.Statuses {
			names[i] = string(s)
		}
		v.Set("status", strings.Join(names, ","))
	}
	if q.Initiator != "" {
		v.Set("initiator", q.Initiator)
	}
	return get[[]ProvisionerJob](ctx, c, "organizations/"+seg(organization)+"/provisionerjobs?"+v.Encode())
}

func (c *Client) ProvisionerJob(ctx context.Context, organization string, id uuid.UUID) (ProvisionerJob, error) {
	return get[ProvisionerJob](ctx, c, "organizations/"+seg(organization)+"/provisionerjobs/"+id.String())
}

func (c *Client) ProvisionerKeys(ctx context.Context, organization string) ([]ProvisionerKey, error) {
	return get[[]ProvisionerKey](ctx, c, "organizations/"+seg(organization)+"/provisionerkeys")
}

// CreateProvisionerKey creates a key. The response is the only place that shows it.
func (c *Client) CreateProvisionerKey(
	ctx context.Context, organization string, req CreateProvisionerKeyRequest,
) (CreateProvisionerKeyResponse, error) {
	return create[CreateProvisionerKeyResponse](ctx, c, "organizations/"+seg(organization)+"/provisionerkeys", req)
}

// DeleteProvisionerKey deletes the key and disconnects its provisioners.
func (c *Client) DeleteProvisionerKey(ctx context.Context, organization, name string) error {
	return c.do(ctx, http.MethodDelete, "organizations/"+seg(organization)+"/provisionerkeys/"+seg(name), nil, nil)
}

// CancelJob cancels a job of any kind.
func (c *Client) CancelJob(ctx context.Context, organization string, id uuid.UUID) error {
	return c.do(ctx, http.MethodPatch, "organizations/"+seg(organization)+"/provisionerjobs/"+id.String()+"/cancel",
		nil, nil)
}
