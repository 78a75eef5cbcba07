package sdk

import (
	"context"
	"iter"
	"net/http"

	"github.com/google/uuid"
)

// CreatePlanRequest plans the update of a workspace (POST workspaces/{w}/plan): what a start with a template version and
// values would change. Nothing is changed, and no state is stored.
type CreatePlanRequest struct {
	TemplateVersionID   uuid.UUID        `json:"template_version_id,omitzero"` // zero: the template's active one
	RichParameterValues []ParameterValue `json:"rich_parameter_values,omitempty"`
}

// WorkspacePlan is the plan of an update. Its job is a dry run: it is canceled when a build of the workspace or another
// plan begins.
type WorkspacePlan struct {
	ID                uuid.UUID           `json:"id"` // of the job, too
	WorkspaceID       uuid.UUID           `json:"workspace_id"`
	TemplateVersionID uuid.UUID           `json:"template_version_id"`
	Job               ProvisionerJob      `json:"job"`
	Changes           List[PlannedChange] `json:"changes"` // by address; empty until the job has succeeded
}

// PlannedChange is what an update would do with one resource.
type PlannedChange struct {
	Address string     `json:"address"` // as Terraform writes it
	Type    string     `json:"type"`
	Name    string     `json:"name"`
	Action  PlanAction `json:"action"`
	// Attributes names what changes in place, or what forces the replacement; empty if Terraform does not say.
	Attributes List[string] `json:"attributes"`
	// LosesData: the update replaces or deletes a resource that outlives a stop and may hold data.
	LosesData bool `json:"loses_data"`
}

func planPath(workspace, plan uuid.UUID) string {
	return "workspaces/" + workspace.String() + "/plan/" + plan.String()
}

func (c *Client) CreatePlan(ctx context.Context, workspace uuid.UUID, req CreatePlanRequest) (WorkspacePlan, error) {
	return create[WorkspacePlan](ctx, c, "workspaces/"+workspace.String()+"/plan", req)
}

func (c *Client) Plan(ctx context.Context, workspace, plan uuid.UUID) (WorkspacePlan, error) {
	return get[WorkspacePlan](ctx, c, planPath(workspace, plan))
}

func (c *Client) CancelPlan(ctx context.Context, workspace, plan uuid.UUID) error {
	return c.do(ctx, http.MethodPatch, planPath(workspace, plan)+"/cancel", nil, nil)
}

// FollowPlanLogs is FollowBuildLogs for a plan.
func (c *Client) FollowPlanLogs(ctx context.Context, workspace, plan uuid.UUID, after int64) iter.Seq2[JobLog, error] {
	return follow[JobLog](ctx, c, planPath(workspace, plan)+"/logs", after)
}
