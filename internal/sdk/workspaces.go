package sdk

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"
)

// Workspace is one user's environment. LatestBuild describes what exists of it.
type Workspace struct {
	ID                                   uuid.UUID        `json:"id"`
	CreatedAt                            time.Time        `json:"created_at"`
	UpdatedAt                            time.Time        `json:"updated_at"`
	OwnerID                              uuid.UUID        `json:"owner_id"`
	OwnerName                            string           `json:"owner_name"`
	OwnerAvatarURL                       string           `json:"owner_avatar_url"`
	OrganizationID                       uuid.UUID        `json:"organization_id"`
	OrganizationName                     string           `json:"organization_name"`
	TemplateID                           uuid.UUID        `json:"template_id"`
	TemplateName                         string           `json:"template_name"`
	TemplateDisplayName                  string           `json:"template_display_name"`
	TemplateIcon                         string           `json:"template_icon"`
	TemplateAllowUserCancelWorkspaceJobs bool             `json:"template_allow_user_cancel_workspace_jobs"`
	TemplateActiveVersionID              uuid.UUID        `json:"template_active_version_id"`
	TemplateRequireActiveVersion         bool             `json:"template_require_active_version"`
	TemplateUseClassicParameterFlow      bool             `json:"template_use_classic_parameter_flow"`
	LatestBuild                          WorkspaceBuild   `json:"latest_build"`
	LatestAppStatus                      *AppStatus       `json:"latest_app_status"`
	Outdated                             bool             `json:"outdated"`
	Name                                 string           `json:"name"`
	AutostartSchedule                    *string          `json:"autostart_schedule,omitempty"`
	TTLMillis                            *int64           `json:"ttl_ms,omitempty"`
	LastUsedAt                           time.Time        `json:"last_used_at"`
	DeletingAt                           *time.Time       `json:"deleting_at"`
	DormantAt                            *time.Time       `json:"dormant_at"`
	Health                               WorkspaceHealth  `json:"health"`
	AutomaticUpdates                     AutomaticUpdates `json:"automatic_updates"`
	AllowRenames                         bool             `json:"allow_renames"`
	Favorite                             bool             `json:"favorite"`
	NextStartAt                          *time.Time       `json:"next_start_at"`
	IsPrebuild                           bool             `json:"is_prebuild"`
	// Consequences are what happens to the workspace if nothing changes, the earliest first.
	Consequences List[ScheduledConsequence] `json:"consequences"`
	// Shared reports whether the workspace is shared with a user or group.
	Shared      bool                 `json:"shared"`
	Permissions WorkspacePermissions `json:"permissions"`
}

// WorkspacePermissions is what the user who reads a workspace may do with it.
type WorkspacePermissions struct {
	Connect bool `json:"connect"` // open sessions, ports and apps
	Build   bool `json:"build"`   // start, stop and cancel
	Update  bool `json:"update"`  // change its settings
	Delete  bool `json:"delete"`
	Share   bool `json:"share"` // give others access
	// Withdraw is to see with whom it is shared, and to end or lower that.
	Withdraw bool `json:"withdraw"`
	Transfer bool `json:"transfer"` // give it to another user
	// RestoreState is to see which Terraform states are stored, and to build from one of them.
	RestoreState bool `json:"restore_state"`
}

// FullName returns "owner/name".
func (w Workspace) FullName() string { return w.OwnerName + "/" + w.Name }

// Running reports whether the latest build started the workspace, or was a start that was refused while the workspace
// ran.
func (w Workspace) Running() bool {
	b := w.LatestBuild
	return b.Transition == TransitionStart &&
		(b.Job.Status == JobSucceeded || len(b.WouldReplace) > 0 && len(b.Agents()) > 0)
}

// Stopped reports whether the latest build stopped the workspace.
func (w Workspace) Stopped() bool {
	return w.LatestBuild.Transition == TransitionStop && w.LatestBuild.Job.Status == JobSucceeded
}

type WorkspaceHealth struct {
	Healthy       bool            `json:"healthy"`
	FailingAgents List[uuid.UUID] `json:"failing_agents"`
}

// WorkspacesResponse is one page of workspaces, and the number of all that match.
type WorkspacesResponse struct {
	Workspaces List[Workspace] `json:"workspaces"`
	Count      int             `json:"count"`
}

// WorkspacesQuery selects workspaces. The zero value means all that the caller may see.
type WorkspacesQuery struct {
	Q             string // "owner:me name:x template:y status:running"
	Limit, Offset int    // 0: the server's own limit
	// Sort is the order. Empty means the list's own: the caller's favorites, running workspaces, then by owner and
	// name.
	Sort WorkspaceOrder
}

// CreateWorkspaceRequest names a template or one of its versions.
type CreateWorkspaceRequest struct {
	TemplateID              uuid.UUID        `json:"template_id,omitzero"`
	TemplateVersionID       uuid.UUID        `json:"template_version_id,omitzero"`
	TemplateVersionPresetID uuid.UUID        `json:"template_version_preset_id,omitzero"`
	Name                    string           `json:"name"`
	AutostartSchedule       *string          `json:"autostart_schedule,omitempty"`
	TTLMillis               *int64           `json:"ttl_ms,omitempty"`
	RichParameterValues     []ParameterValue `json:"rich_parameter_values,omitempty"`
	AutomaticUpdates        AutomaticUpdates `json:"automatic_updates,omitempty"`
	// ProvisionerTags are required in addition to the template's, by this build and later ones.
	ProvisionerTags map[string]string `json:"provisioner_tags,omitzero"`
}

// ParameterValue is the value of a coder_parameter, in its text form.
type ParameterValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// BuildParameter is a parameter's value as a build used it.
type BuildParameter struct {
	Name  string `json:"name"`
	Value string `json:"value"` // if Masked, empty for all users except the workspace's owner
	// Masked is set if pages and terminals must show the value only on request.
	Masked bool `json:"masked"`
	// Computed is set if the template computed the value because no one chose one. Later builds keep it like one that
	// was chosen.
	Computed bool `json:"computed"`
}

type UpdateWorkspaceRequest struct {
	Name string `json:"name,omitempty"`
}

// TransferWorkspaceRequest gives a workspace to another user.
type TransferWorkspaceRequest struct {
	Owner string `json:"owner"` // the new owner, by name or id
	// Name is what the workspace is called from then on. Empty: it keeps its name.
	Name string `json:"name,omitempty"`
}

type UpdateAutostartRequest struct {
	Schedule *string `json:"schedule,omitempty"`
}

type UpdateTTLRequest struct {
	TTLMillis *int64 `json:"ttl_ms"`
}

type ExtendRequest struct {
	Deadline time.Time `json:"deadline"`
}

type UpdateAutomaticUpdatesRequest struct {
	AutomaticUpdates AutomaticUpdates `json:"automatic_updates"`
}

// UsageRequest reports that the workspace is in use. A zero request only updates last_used_at.
type UsageRequest struct {
	AgentID uuid.UUID `json:"agent_id,omitzero"`
	AppName string    `json:"app_name,omitempty"` // vscode, jetbrains, reconnecting-pty, ssh
}

// WatchEvent is one message of workspaces/{w}/watch-ws.
type WatchEvent struct {
	Type string `json:"type"` // data, ping, error
	Data any    `json:"data,omitempty"`
}

func (c *Client) CreateWorkspace(ctx context.Context, user string, req CreateWorkspaceRequest) (Workspace, error) {
	return create[Workspace](ctx, c, "users/"+seg(user)+"/workspaces", req)
}

func (c *Client) Workspaces(ctx context.Context, q WorkspacesQuery) (WorkspacesResponse, error) {
	path := "workspaces" + cmp.Or(page(q.Q, q.Limit, q.Offset), "?")
	if q.Sort != "" {
		path += "&sort=" + url.QueryEscape(string(q.Sort))
	}
	return get[WorkspacesResponse](ctx, c, path)
}

// AllWorkspaces reads every page of the workspaces that match q, in an order.
func (c *Client) AllWorkspaces(ctx context.Context, q string, order WorkspaceOrder) ([]Workspace, error) {
	var all []Workspace
	for {
		page, err := c.Workspaces(ctx, WorkspacesQuery{Q: q, Sort: order, Limit: 100, Offset: len(all)})
		if err != nil {
			return nil, err
		}
		all = append(all, page.Workspaces...)
		if len(page.Workspaces) == 0 || len(all) >= page.Count {
			return all, nil
		}
	}
}

func (c *Client) Workspace(ctx context.Context, id uuid.UUID) (Workspace, error) {
	return get[Workspace](ctx, c, "workspaces/"+id.String())
}

// WorkspaceByName returns the named workspace of the user; Me means the caller.
func (c *Client) WorkspaceByName(ctx context.Context, user, name string) (Workspace, error) {
	return get[Workspace](ctx, c, "users/"+seg(user)+"/workspace/"+seg(name))
}

func (c *Client) UpdateWorkspace(ctx context.Context, id uuid.UUID, req UpdateWorkspaceRequest) error {
	return c.do(ctx, http.MethodPatch, "workspaces/"+id.String(), req, nil)
}

// TransferWorkspace gives a workspace to another user. A workspace that is not stopped keeps its owner for now: the
// latest build of the answer stops it, and the transfer follows when that build has succeeded.
func (c *Client) TransferWorkspace(ctx context.Context, id uuid.UUID, req TransferWorkspaceRequest) (Workspace, error) {
	return send[Workspace](ctx, c, http.MethodPost, "workspaces/"+id.String()+"/transfer", req)
}

func (c *Client) UpdateAutostart(ctx context.Context, id uuid.UUID, req UpdateAutostartRequest) error {
	return c.do(ctx, http.MethodPut, "workspaces/"+id.String()+"/autostart", req, nil)
}

func (c *Client) UpdateTTL(ctx context.Context, id uuid.UUID, req UpdateTTLRequest) error {
	return c.do(ctx, http.MethodPut, "workspaces/"+id.String()+"/ttl", req, nil)
}

func (c *Client) ExtendWorkspace(ctx context.Context, id uuid.UUID, req ExtendRequest) error {
	return c.do(ctx, http.MethodPut, "workspaces/"+id.String()+"/extend", req, nil)
}

func (c *Client) UpdateAutomaticUpdates(ctx context.Context, id uuid.UUID, req UpdateAutomaticUpdatesRequest) error {
	return c.do(ctx, http.MethodPut, "workspaces/"+id.String()+"/autoupdates", req, nil)
}

func (c *Client) FavoriteWorkspace(ctx context.Context, id uuid.UUID) error {
	return c.do(ctx, http.MethodPut, "workspaces/"+id.String()+"/favorite", nil, nil)
}

func (c *Client) UnfavoriteWorkspace(ctx context.Context, id uuid.UUID) error {
	return c.do(ctx, http.MethodDelete, "workspaces/"+id.String()+"/favorite", nil, nil)
}

func (c *Client) WorkspaceUsage(ctx context.Context, id uuid.UUID, req UsageRequest) error {
	return c.do(ctx, http.MethodPost, "workspaces/"+id.String()+"/usage", req, nil)
}
