package workspaces

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/consents"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// A plan tells what an update would change: a dry run of a template version that begins with the workspace's state. It
// passes all checks of a start and gets what a start gets, except the owner's session token, whose creation would end
// the one that the running workspace uses. Its result lists resources and names of their attributes, no values. The
// provisioner keeps no state of it, and the server stores none.
//
// A build comes first: it cancels the workspace's plans when it is queued, and while it is active no plan can be made.
// A new plan cancels the earlier one, so that at most one plan of a workspace is queued or running; others are ending.

// maxEnding bounds the canceled plans of a workspace whose provisioner has not stopped yet.
const maxEnding = 1

// planAttributes bounds the names of attributes that a resource of a plan shows.
const planAttributes = 100

func (s *Service) createPlan(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	ws, err := s.buildable(r)
	if err != nil {
		return err
	}
	var req sdk.CreatePlanRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	version := req.TemplateVersionID
	if version == uuid.Nil {
		t, err := s.opts.DB.GetTemplate(ctx, ws.TemplateID)
		if err != nil {
			return fmt.Errorf("read template: %w", err)
		}
		version = t.ActiveVersionID
	}
	build, err := s.buildRequestOf(ctx, actor, ws, sdk.CreateBuildRequest{
		Transition: sdk.TransitionStart, TemplateVersionID: version, RichParameterValues: req.RichParameterValues,
	})
	if err != nil {
		return err
	}
	build.byHand = false // a plan gives no consent
	if err := s.opts.ExternalAuth.Freshen(ctx, ws.OwnerID); err != nil {
		return err
	}
	var job dbsqlc.ProvisionerJob
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		locked, err := q.LockWorkspace(ctx, ws.ID)
		if err != nil {
			return err
		}
		job, err = s.queuePlan(ctx, q, locked, build)
		return err
	})
	if err != nil {
		return fmt.Errorf("create plan: %w", err)
	}
	return s.writePlan(w, r, http.StatusCreated, ws.ID, job.ID)
}

// queuePlan queues the plan of a start. The caller's transaction must hold the workspace's row lock.
func (s *Service) queuePlan(
	ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, build buildRequest,
) (dbsqlc.ProvisionerJob, error) {
	n, err := s.plan(ctx, q, w, build)
	if err != nil {
		return dbsqlc.ProvisionerJob{}, err
	}
	ending, err := s.cancelPlans(ctx, q, w.ID)
	if err != nil {
		return dbsqlc.ProvisionerJob{}, err
	}
	if ending > maxEnding {
		return dbsqlc.ProvisionerJob{}, fault.New(fault.Conflict, "Earlier plans of the workspace %q have not ended yet.", w.Name).
			WithDetail("They are being canceled. Try again in a moment.")
	}
	job, err := s.opts.Jobs.Insert(ctx, q, jobs.NewJob{
		Kind: string(sdk.JobTemplateDryRun), Org: w.OrganizationID, Initiator: build.initiator, FileID: n.file,
		Tags: ownerTags(n.tags, w.OwnerID), Priority: build.priority,
		Input: templates.DryRunInput{
			TemplateVersionID: n.version, WorkspaceID: &w.ID, WorkspaceName: w.Name, Parameters: plain(n.values.now),
		},
	})
	if err != nil {
		return job, err
	}
	if err := q.InsertWorkspacePlan(ctx, dbsqlc.InsertWorkspacePlanParams{
		JobID: job.ID, WorkspaceID: w.ID,
	}); err != nil {
		return job, fmt.Errorf("insert plan: %w", err)
	}
	return job, s.record(ctx, q, audit.Entry{
		ID: job.ID, Name: "plan of " + w.Name, Fields: map[string]any{"template_version_id": n.version},
	}, w)
}

// cancelPlans cancels a workspace's plans in the caller's transaction, which must hold the workspace's row lock. It
// returns how many have not ended, because their provisioner has to stop them first.
func (s *Service) cancelPlans(ctx context.Context, q *dbsqlc.Queries, workspace uuid.UUID) (ending int, err error) {
	open, err := q.LockOpenPlans(ctx, workspace)
	if err != nil {
		return 0, fmt.Errorf("lock plans: %w", err)
	}
	for _, job := range open {
		if sdk.JobStatus(job.Status) != sdk.JobPending {
			ending++
		}
		if sdk.JobStatus(job.Status) == sdk.JobCanceling {
			continue
		}
		if err := s.opts.Jobs.CancelLocked(ctx, q, job); err != nil {
			return 0, fmt.Errorf("cancel plan: %w", err)
		}
	}
	return ending, nil
}

// planInPath returns the plan in the path if the actor may read the workspace and perform the action on its builds.
func (s *Service) planInPath(r *http.Request, action rbac.Action) (dbsqlc.GetWorkspacePlanRow, error) {
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return dbsqlc.GetWorkspacePlanRow{}, err
	}
	if err := httpapi.ActorFrom(r.Context()).May(action, object(ws).As(rbac.WorkspaceBuild)); err != nil {
		return dbsqlc.GetWorkspacePlanRow{}, err
	}
	id, err := httpapi.PathUUID(r, "job")
	if err != nil {
		return dbsqlc.GetWorkspacePlanRow{}, err
	}
	p, err := s.opts.DB.GetWorkspacePlan(r.Context(), dbsqlc.GetWorkspacePlanParams{JobID: id, WorkspaceID: ws.ID})
	if err != nil {
		return p, lookup.Fault(err, rbac.ProvisionerJob, "read plan")
	}
	return p, nil
}

func (s *Service) getPlan(w http.ResponseWriter, r *http.Request) error {
	p, err := s.planInPath(r, rbac.Read)
	if err != nil {
		return err
	}
	return s.writePlan(w, r, http.StatusOK, p.WorkspaceID, p.JobID)
}

func (s *Service) writePlan(w http.ResponseWriter, r *http.Request, status int, workspace, job uuid.UUID) error {
	p, err := s.opts.DB.GetWorkspacePlan(r.Context(), dbsqlc.GetWorkspacePlanParams{
		JobID: job, WorkspaceID: workspace,
	})
	if err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	var in templates.DryRunInput
	if err := json.Unmarshal(p.Input, &in); err != nil {
		return fmt.Errorf("decode plan's input: %w", err)
	}
	shown, err := s.opts.Jobs.JSON(r.Context(), s.opts.DB.Queries, job)
	if err != nil {
		return fmt.Errorf("show plan: %w", err)
	}
	out := sdk.WorkspacePlan{
		ID: job, WorkspaceID: workspace, TemplateVersionID: in.TemplateVersionID, Job: shown[job],
	}
	if p.Changes != nil {
		if err := json.Unmarshal(p.Changes, &out.Changes); err != nil {
			return fmt.Errorf("decode plan: %w", err)
		}
	} else if out.Job.Status == sdk.JobSucceeded { // the result was stored by an older server
		out.Job.Status, out.Job.Error = sdk.JobFailed, oldPlanner
	}
	return httpapi.Write(w, status, out)
}

// oldPlanner is the error of a plan that was run as a dry run, from nothing.
const oldPlanner = "The provisioner cannot plan the update of a workspace: upgrade it, or the server, and plan again."

func (s *Service) planLogs(w http.ResponseWriter, r *http.Request) error {
	p, err := s.planInPath(r, rbac.Read)
	if err != nil {
		return err
	}
	return s.opts.Jobs.ServeLogs(w, r, p.JobID)
}

func (s *Service) cancelPlan(w http.ResponseWriter, r *http.Request) error {
	p, err := s.planInPath(r, rbac.Create)
	if err != nil {
		return err
	}
	if err := s.opts.Jobs.Cancel(r.Context(), p.JobID, audit.Entry{
		ID: p.JobID, Name: "plan", Organization: p.OrganizationID,
	}); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The plan is being canceled."})
}

// Plans returns the handler of dry runs of existing workspaces.
func (s *Service) Plans() jobs.StateReader { return planHandler{s} }

// planHandler runs plans.
type planHandler struct{ *Service }

// input returns what a plan is of. It returns a fault if the workspace cannot be started any more.
func (h planHandler) input(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob,
) (in templates.DryRunInput, w dbsqlc.Workspace, latest dbsqlc.GetLatestBuildRow, err error) {
	if err := json.Unmarshal(job.Input, &in); err != nil {
		return in, w, latest, fmt.Errorf("decode plan: %w", err)
	}
	if in.WorkspaceID == nil {
		return in, w, latest, fault.New(fault.Invalid, "The plan names no workspace.")
	}
	if w, err = q.GetWorkspace(ctx, *in.WorkspaceID); err != nil {
		return in, w, latest, fmt.Errorf("read workspace: %w", err)
	}
	if w.DeletedAt != nil {
		return in, w, latest, fault.New(fault.Conflict, "The workspace %q is deleted.", w.Name)
	}
	if latest, err = q.GetLatestBuild(ctx, w.ID); err != nil {
		return in, w, latest, fmt.Errorf("read latest build: %w", err)
	}
	return in, w, latest, nil
}

// State implements jobs.StateReader.
func (h planHandler) State(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob) ([]byte, error) {
	_, w, latest, err := h.input(ctx, q, job)
	if err != nil {
		return nil, err
	}
	return h.state(ctx, q, w.ID, latest.ID)
}

func (h planHandler) Offer(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, offer *provisionerpb.Offer,
) error {
	in, w, latest, err := h.input(ctx, q, job)
	if err != nil {
		return err
	}
	metadata, err := h.planMetadata(ctx, q, job, in, w, latest)
	if err != nil {
		return err
	}
	variables, err := templates.Variables(ctx, q, in.TemplateVersionID)
	if err != nil {
		return err
	}
	existing := &provisionerpb.Existing{}
	if existing.State, err = h.state(ctx, q, w.ID, latest.ID); err != nil {
		return err
	}
	rows, err := q.ListBuildParameters(ctx, latest.ID)
	if err != nil {
		return fmt.Errorf("list parameters of build: %w", err)
	}
	for _, row := range rows {
		existing.PreviousParameters = append(existing.PreviousParameters,
			&provisionerpb.ParameterValue{Name: row.Name, Value: row.Value})
	}
	offer.Job = &provisionerpb.Offer_TemplateDryRun{TemplateDryRun: &provisionerpb.TemplateDryRun{
		Variables: variables, Parameters: templates.ParameterValues(in.Parameters), Metadata: metadata,
		Existing: existing,
	}}
	return nil
}

// planMetadata returns what the template may read: as for a build, without the session token.
func (h planHandler) planMetadata(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, in templates.DryRunInput, w dbsqlc.Workspace,
	latest dbsqlc.GetLatestBuildRow,
) (*provisionerpb.Metadata, error) {
	v, err := q.GetTemplateVersion(ctx, in.TemplateVersionID)
	if err != nil {
		return nil, fmt.Errorf("read template version: %w", err)
	}
	t, err := q.GetTemplate(ctx, w.TemplateID)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	org, err := q.GetOrganizationByReference(ctx, w.OrganizationID.String())
	if err != nil {
		return nil, fmt.Errorf("read organization: %w", err)
	}
	owner, err := q.GetTemplateOwnerFacts(ctx, w.OwnerID)
	if err != nil {
		return nil, fmt.Errorf("read owner: %w", err)
	}
	groups, err := q.ListOwnerGroupNames(ctx, dbsqlc.ListOwnerGroupNamesParams{
		OrganizationID: w.OrganizationID, UserID: w.OwnerID,
	})
	if err != nil {
		return nil, fmt.Errorf("list owner's groups: %w", err)
	}
	consented, err := consents.Hold(ctx, q, w.OwnerID, w.TemplateID)
	if err != nil {
		return nil, err
	}
	if job.Epoch == 1 { // no earlier offer has said it
		if text := withheld(consented, v, owner.Username); text != "" {
			if err := h.opts.Jobs.Warn(ctx, q, job, "Preparing", text); err != nil {
				return nil, err
			}
		}
	}
	return buildHandler(h).metadata(ctx, q, dbsqlc.GetBuildOfferRow{
		ID: job.ID, WorkspaceID: w.ID, WorkspaceName: w.Name, BuildNumber: latest.BuildNumber + 1,
		Transition: string(sdk.TransitionStart), TemplateVersionID: v.ID, VersionName: v.Name, TemplateID: t.ID,
		TemplateName: t.Name, IdentityBuildAudience: t.IdentityBuildAudience, OrganizationID: org.ID,
		OrganizationName: org.Name, OwnerID: w.OwnerID, Username: owner.Username, Email: owner.Email,
		FullName: owner.Name, LoginType: owner.LoginType, Roles: owner.Roles, SshPublicKey: owner.SshPublicKey,
		Groups: groups, AsksLogins: true, NamesOwnerSshPrivateKey: v.NamesOwnerSshPrivateKey,
		NamesOwnerOidcAccessToken: v.NamesOwnerOidcAccessToken,
	}, consented)
}

// withheld returns which credentials a plan does not get that a start may get, or "".
func withheld(consented bool, v dbsqlc.TemplateVersion, owner string) string {
	switch {
	case !consented:
		return fmt.Sprintf("This plan gets no credentials of %[1]s, because %[1]s has not started a workspace of the template themselves, or has revoked that. A start with them may change more.", owner)
	case v.NamesOwnerSessionToken:
		return "This plan gets no session token of the owner. What depends on the token is shown as changed, as every start changes it."
	}
	return ""
}

// Checkpoint does nothing: plans keep no state.
func (planHandler) Checkpoint(context.Context, *dbsqlc.Queries, dbsqlc.ProvisionerJob, []byte) error {
	return nil
}

// Resources does nothing: plans create nothing.
func (planHandler) Resources(
	context.Context, *dbsqlc.Queries, dbsqlc.ProvisionerJob, []*provisionerpb.Resource,
) error {
	return nil
}

// planActions are the actions of a plan that the API shows.
var planActions = map[provisionerpb.PlannedChange_Action]sdk.PlanAction{
	provisionerpb.PlannedChange_ACTION_CREATE: sdk.PlanCreate, provisionerpb.PlannedChange_ACTION_UPDATE: sdk.PlanUpdate,
	provisionerpb.PlannedChange_ACTION_REPLACE: sdk.PlanReplace, provisionerpb.PlannedChange_ACTION_DELETE: sdk.PlanDelete,
	provisionerpb.PlannedChange_ACTION_NO_OP: sdk.PlanNoOp, provisionerpb.PlannedChange_ACTION_READ: sdk.PlanRead,
	provisionerpb.PlannedChange_ACTION_FORGET: sdk.PlanForget,
}

func (h planHandler) Finish(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, result *provisionerpb.Result,
) error {
	if result.GetError() != "" || result.GetCanceled() {
		return nil
	}
	found := result.GetTemplateDryRun().GetPlan()
	if found == nil {
		return &jobs.Rejected{Reason: oldPlanner}
	}
	_, _, latest, err := h.input(ctx, q, job)
	if fault.CodeOf(err) == fault.Conflict {
		return &jobs.Rejected{Reason: err.Error()}
	}
	if err != nil {
		return err
	}
	dataless, err := h.dataless(ctx, q, latest)
	if err != nil {
		return err
	}
	changes := sdk.List[sdk.PlannedChange]{}
	for _, c := range found.GetChanges() {
		action, known := planActions[c.GetAction()]
		if !known {
			continue
		}
		change := sdk.PlannedChange{
			Address: database.Visible(c.GetAddress()), Type: database.Visible(c.GetType()),
			Name: database.Visible(c.GetName()), Action: action, Attributes: sdk.List[string]{},
		}
		for _, name := range c.GetAttributes()[:min(len(c.GetAttributes()), planAttributes)] {
			change.Attributes = append(change.Attributes, database.Visible(name))
		}
		change.LosesData = c.GetHoldsData() && (action == sdk.PlanReplace || action == sdk.PlanDelete) &&
			!dataless[change.Type+"."+change.Name] && !dataless[change.Address]
		changes = append(changes, change)
	}
	data, err := json.Marshal(changes)
	if err != nil {
		return fmt.Errorf("encode plan: %w", err)
	}
	if err := q.UpdateWorkspacePlan(ctx, dbsqlc.UpdateWorkspacePlanParams{JobID: job.ID, Changes: data}); err != nil {
		return fmt.Errorf("store plan: %w", err)
	}
	return nil
}

// dataless returns which resources of a workspace hold no data for other reasons than their type: types and names of
// those that it has only while it runs, as the import of its version found them, or, after a stop, addresses of those
// that the stop created. A stop of a running workspace may create resources as well, which a plan does not know.
func (h planHandler) dataless(
	ctx context.Context, q *dbsqlc.Queries, latest dbsqlc.GetLatestBuildRow,
) (map[string]bool, error) {
	out := map[string]bool{}
	if sdk.Transition(latest.Transition) == sdk.TransitionStop && sdk.JobStatus(latest.JobStatus) == sdk.JobSucceeded {
		created, err := q.GetCreatedResources(ctx, latest.ID)
		if err != nil {
			return nil, fmt.Errorf("read what the stop created: %w", err)
		}
		for _, address := range created {
			out[address] = true
		}
		return out, nil
	}
	v, err := q.GetTemplateVersion(ctx, latest.TemplateVersionID)
	if err != nil {
		return nil, fmt.Errorf("read version of the latest build: %w", err)
	}
	rows, err := q.ListResources(ctx, []uuid.UUID{v.JobID})
	if err != nil {
		return nil, fmt.Errorf("list resources of version: %w", err)
	}
	for _, row := range rows {
		if sdk.Transition(row.Transition) == sdk.TransitionStart {
			out[row.Type+"."+row.Name] = true
		}
	}
	for _, row := range rows {
		if sdk.Transition(row.Transition) == sdk.TransitionStop {
			delete(out, row.Type+"."+row.Name)
		}
	}
	return out, nil
}
