package sdk

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// WorkspaceBuild is one start, stop or delete of a workspace.
type WorkspaceBuild struct {
	ID                      uuid.UUID               `json:"id"`
	CreatedAt               time.Time               `json:"created_at"`
	UpdatedAt               time.Time               `json:"updated_at"`
	WorkspaceID             uuid.UUID               `json:"workspace_id"`
	WorkspaceName           string                  `json:"workspace_name"`
	WorkspaceOwnerID        uuid.UUID               `json:"workspace_owner_id"`
	WorkspaceOwnerName      string                  `json:"workspace_owner_name"`
	WorkspaceOwnerAvatarURL string                  `json:"workspace_owner_avatar_url,omitempty"`
	TemplateVersionID       uuid.UUID               `json:"template_version_id"`
	TemplateVersionName     string                  `json:"template_version_name"`
	TemplateVersionPresetID *uuid.UUID              `json:"template_version_preset_id"`
	BuildNumber             int32                   `json:"build_number"`
	Transition              Transition              `json:"transition"`
	InitiatorID             uuid.UUID               `json:"initiator_id"`
	InitiatorName           string                  `json:"initiator_name"`
	Job                     ProvisionerJob          `json:"job"`
	Reason                  BuildReason             `json:"reason"`
	Resources               List[WorkspaceResource] `json:"resources"`
	Deadline                *time.Time              `json:"deadline,omitempty"`
	MaxDeadline             *time.Time              `json:"max_deadline,omitempty"`
	// Explanation is a sentence on why the server made the build; "" if a person did.
	Explanation         string               `json:"explanation"`
	Status              WorkspaceStatus      `json:"status"`
	DailyCost           int32                `json:"daily_cost"`
	MatchedProvisioners *MatchedProvisioners `json:"matched_provisioners,omitempty"`
	// UnknownResources lists the addresses of resources that this build, or one before it, began to change, and that
	// may exist without being in the state. TaintedResources were begun, are in the state, and are recreated by the
	// next build. A build that succeeds leaves none.
	UnknownResources []string `json:"unknown_resources,omitempty"`
	TaintedResources []string `json:"tainted_resources,omitempty"`
	HasExternalAgent bool     `json:"has_external_agent"`
	// CredentialsWithheld reports that the workspace has none of its owner's credentials, because the owner has not
	// started a workspace of the template themselves, or has revoked that.
	CredentialsWithheld bool `json:"credentials_withheld"`
	// AllowReplacing is what the request allowed the build to replace; nil if the template decided.
	AllowReplacing []string `json:"allow_replacing,omitzero"`
	// WouldReplace lists the addresses of the resources because of which a build was refused (JobErrorReplaces). Such a
	// build has the version and the parameters that the workspace had before, and keeps.
	WouldReplace []string `json:"would_replace,omitempty"`
	// InstantClaim reports that the build gives a prebuilt workspace to its owner, who can connect while the build is
	// still running.
	InstantClaim bool `json:"instant_claim"`
}

// Given reports whether the build's owner can connect although it has not ended: it is an instant claim.
func (b WorkspaceBuild) Given() bool {
	return b.InstantClaim && (b.Job.Status == JobPending || b.Job.Status == JobRunning)
}

// Agents returns the agents of a build, in the order of its resources.
func (b WorkspaceBuild) Agents() (agents []WorkspaceAgent) {
	for _, r := range b.Resources {
		agents = append(agents, r.Agents...)
	}
	return agents
}

// OuterAgents returns the agents of a build without those that run in dev containers.
func (b WorkspaceBuild) OuterAgents() []WorkspaceAgent {
	return slices.DeleteFunc(b.Agents(), func(a WorkspaceAgent) bool { return a.ParentID != nil })
}

// Status returns a build's status as a workspace status, such as starting or running.
func (t Transition) Status(job JobStatus) WorkspaceStatus {
	switch job {
	case JobPending:
		return WorkspacePending
	case JobCanceling:
		return WorkspaceCanceling
	case JobCanceled:
		return WorkspaceCanceled
	case JobFailed:
		return WorkspaceFailed
	}
	running := job == JobRunning
	switch {
	case t == TransitionStart && running:
		return WorkspaceStarting
	case t == TransitionStart:
		return WorkspaceRunning
	case t == TransitionStop && running:
		return WorkspaceStopping
	case t == TransitionStop:
		return WorkspaceStopped
	case running:
		return WorkspaceDeleting
	default:
		return WorkspaceDeleted
	}
}

// CreateBuildRequest starts, stops or deletes a workspace.
type CreateBuildRequest struct {
	TemplateVersionID       uuid.UUID        `json:"template_version_id,omitzero"` // zero: the previous one, or the active one where the template requires it
	TemplateVersionPresetID uuid.UUID        `json:"template_version_preset_id,omitzero"`
	Transition              Transition       `json:"transition"`
	DryRun                  bool             `json:"dry_run,omitempty"`
	ProvisionerState        []byte           `json:"state,omitempty"`
	ForceState              bool             `json:"force_state,omitempty"` // the state may be older, or have another lineage
	Orphan                  bool             `json:"orphan,omitempty"`      // delete only: forget the resources instead of destroying them
	RichParameterValues     []ParameterValue `json:"rich_parameter_values,omitempty"`
	// ProvisionerTags are required in addition to the template's. Nil: those of the previous build. Empty: none.
	ProvisionerTags map[string]string `json:"provisioner_tags,omitzero"`
	// AllowReplacing lists the addresses of the resources that a start or stop may replace or delete although the
	// workspace keeps them while it is stopped. A build that would do more fails with JobErrorReplaces before it
	// changes anything. Nil: the template decides. Empty: none.
	AllowReplacing []string    `json:"allow_replacing,omitzero"`
	LogLevel       string      `json:"log_level,omitempty"` // "", "debug"
	Reason         BuildReason `json:"reason,omitempty"`
}

// UpdateStateRequest replaces a build's Terraform state (PUT workspacebuilds/{b}/state).
type UpdateStateRequest struct {
	State []byte `json:"state"`
	Force bool   `json:"force,omitempty"` // the state may be older, or have another lineage
}

// StoredState identifies the Terraform state that a build left (GET workspaces/{w}/states). Problem says why no build
// can start from it; the fields after it are then zero.
type StoredState struct {
	BuildID       uuid.UUID  `json:"build_id"`
	BuildNumber   int32      `json:"build_number"`
	Transition    Transition `json:"transition"`
	JobStatus     JobStatus  `json:"job_status"`
	CreatedAt     time.Time  `json:"created_at"`
	InitiatorID   uuid.UUID  `json:"initiator_id"`
	InitiatorName string     `json:"initiator_name"`
	Problem       string     `json:"problem,omitempty"`
	Lineage       string     `json:"lineage,omitempty"` // the same for all states that follow from one another
	Serial        uint64     `json:"serial"`            // grows with every change
	Resources     int        `json:"resources"`         // instances of managed resources
	Size          int64      `json:"size"`              // bytes
}

// RestoreStateRequest builds a workspace from the state that an earlier build left (POST workspacebuilds/{b}/restore):
// with the transition and the template version of its latest build.
type RestoreStateRequest struct {
	Reason BuildReason `json:"reason,omitempty"`
}

// WorkspaceResource is one Terraform resource of a build.
type WorkspaceResource struct {
	ID         uuid.UUID              `json:"id"`
	CreatedAt  time.Time              `json:"created_at"`
	JobID      uuid.UUID              `json:"job_id"`
	Transition Transition             `json:"workspace_transition"`
	Type       string                 `json:"type"`
	Name       string                 `json:"name"`
	Hide       bool                   `json:"hide"`
	Icon       string                 `json:"icon"`
	Agents     List[WorkspaceAgent]   `json:"agents,omitempty"`
	Metadata   List[ResourceMetadata] `json:"metadata,omitempty"`
	DailyCost  int32                  `json:"daily_cost"`
}

type ResourceMetadata struct {
	Key       string `json:"key"`
	Value     string `json:"value"`
	Sensitive bool   `json:"sensitive"`
}

func (c *Client) CreateBuild(ctx context.Context, workspace uuid.UUID, req CreateBuildRequest) (WorkspaceBuild, error) {
	return create[WorkspaceBuild](ctx, c, "workspaces/"+workspace.String()+"/builds", req)
}

// Restart stops a running workspace and starts it again once the stop has succeeded. The server checks the start first,
// and the request's transition is start or empty. It returns the build that runs now: the stop, or the start of a
// stopped workspace.
func (c *Client) Restart(ctx context.Context, workspace uuid.UUID, req CreateBuildRequest) (WorkspaceBuild, error) {
	return create[WorkspaceBuild](ctx, c, "workspaces/"+workspace.String()+"/restart", req)
}

// Builds lists a workspace's builds, newest first.
func (c *Client) Builds(ctx context.Context, workspace uuid.UUID) ([]WorkspaceBuild, error) {
	return get[[]WorkspaceBuild](ctx, c, "workspaces/"+workspace.String()+"/builds")
}

func (c *Client) Build(ctx context.Context, id uuid.UUID) (WorkspaceBuild, error) {
	return get[WorkspaceBuild](ctx, c, "workspacebuilds/"+id.String())
}

func (c *Client) BuildByNumber(ctx context.Context, user, workspace string, number int) (WorkspaceBuild, error) {
	return get[WorkspaceBuild](ctx, c, "users/"+seg(user)+"/workspace/"+seg(workspace)+"/builds/"+strconv.Itoa(number))
}

// BuildParameters returns the values that a build used.
func (c *Client) BuildParameters(ctx context.Context, id uuid.UUID) ([]BuildParameter, error) {
	return get[[]BuildParameter](ctx, c, "workspacebuilds/"+id.String()+"/parameters")
}

func (c *Client) BuildResources(ctx context.Context, id uuid.UUID) ([]WorkspaceResource, error) {
	return get[[]WorkspaceResource](ctx, c, "workspacebuilds/"+id.String()+"/resources")
}

// BuildLogs returns the build's log lines with ids above after.
func (c *Client) BuildLogs(ctx context.Context, id uuid.UUID, after int64) ([]JobLog, error) {
	return get[[]JobLog](ctx, c, "workspacebuilds/"+id.String()+"/logs?after="+strconv.FormatInt(after, 10))
}

func (c *Client) CancelBuild(ctx context.Context, id uuid.UUID) error {
	return c.do(ctx, http.MethodPatch, "workspacebuilds/"+id.String()+"/cancel", nil, nil)
}

// BuildState copies the build's Terraform state to w.
func (c *Client) BuildState(ctx context.Context, id uuid.UUID, w io.Writer) error {
	return c.download(ctx, "workspacebuilds/"+id.String()+"/state", w)
}

// States lists the states that the newest builds of a workspace left, the newest first.
func (c *Client) States(ctx context.Context, workspace uuid.UUID) ([]StoredState, error) {
	return get[[]StoredState](ctx, c, "workspaces/"+workspace.String()+"/states")
}

func (c *Client) RestoreState(ctx context.Context, build uuid.UUID, req RestoreStateRequest) (WorkspaceBuild, error) {
	return create[WorkspaceBuild](ctx, c, "workspacebuilds/"+build.String()+"/restore", req)
}

func (c *Client) UpdateBuildState(ctx context.Context, id uuid.UUID, req UpdateStateRequest) error {
	return c.do(ctx, http.MethodPut, "workspacebuilds/"+id.String()+"/state", req, nil)
}
