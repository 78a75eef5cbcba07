package workspaces

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// show returns workspaces as a user sees them. The number of queries does not depend on the number of workspaces.
func (s *Service) show(
	ctx context.Context, viewer rbac.Actor, rows []dbsqlc.ListWorkspaceRowsRow,
) ([]sdk.Workspace, error) {
	ids := make([]uuid.UUID, len(rows))
	for i, row := range rows {
		ids[i] = row.LatestBuildID
	}
	builds, err := s.showBuilds(ctx, ids)
	if err != nil {
		return nil, err
	}
	shown := make([]uuid.UUID, len(rows))
	for i, row := range rows {
		shown[i] = row.Workspace.ID
	}
	facts, err := s.opts.DB.ListPolicyFacts(ctx, shown)
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	byID := make(map[uuid.UUID]dbsqlc.ListPolicyFactsRow, len(facts))
	for _, f := range facts {
		byID[f.ID] = f
	}
	now := s.opts.Now()
	out := make([]sdk.Workspace, len(rows))
	for i, row := range rows {
		out[i] = workspaceJSON(row, builds[row.LatestBuildID])
		out[i].Permissions = permissions(viewer, row.Workspace)
		if f, ok := byID[row.Workspace.ID]; ok {
			s.showPolicy(now, &out[i], f)
		}
	}
	return out, nil
}

func workspaceJSON(row dbsqlc.ListWorkspaceRowsRow, latest sdk.WorkspaceBuild) sdk.Workspace {
	w := row.Workspace
	out := sdk.Workspace{
		ID: w.ID, CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt, OwnerID: w.OwnerID, OwnerName: row.OwnerName,
		OrganizationID:   w.OrganizationID,
		OrganizationName: row.OrganizationName, TemplateID: w.TemplateID, TemplateName: row.TemplateName,
		TemplateDisplayName: row.TemplateDisplayName,
		TemplateIcon:        row.TemplateIcon, TemplateActiveVersionID: row.TemplateActiveVersionID,
		TemplateRequireActiveVersion: row.TemplateRequireActiveVersion, TemplateUseClassicParameterFlow: true,
		LatestBuild: latest,
		Outdated:    latest.TemplateVersionID != row.TemplateActiveVersionID, Name: w.Name,
		AutostartSchedule: w.AutostartSchedule,
		LastUsedAt:        w.LastUsedAt, Health: health(latest), AutomaticUpdates: sdk.AutomaticUpdates(w.AutomaticUpdates),
		AllowRenames: true, Favorite: row.Favorite,
		Shared: len(w.Sharing) > 0, IsPrebuild: unclaimed(w),
	}
	if w.TtlSeconds != nil {
		ms := *w.TtlSeconds * 1000
		out.TTLMillis = &ms
	}
	return out
}

// permissions returns what a user may do with a workspace, by the same rules as the requests themselves.
func permissions(viewer rbac.Actor, w dbsqlc.Workspace) sdk.WorkspacePermissions {
	o := object(w)
	viewer = viewer.Current()
	may := func(action rbac.Action) bool { return viewer.May(action, o) == nil }
	if unclaimed(w) {
		return sdk.WorkspacePermissions{Delete: may(rbac.Delete)}
	}
	return sdk.WorkspacePermissions{
		Connect:  may(rbac.Connect) && viewer.Reaches(o),
		Build:    viewer.May(rbac.Create, o.As(rbac.WorkspaceBuild)) == nil,
		Update:   may(rbac.Update),
		Delete:   may(rbac.Delete),
		Share:    may(rbac.Share),
		Withdraw: may(rbac.Withdraw),
		Transfer: may(rbac.Transfer),

		RestoreState: viewer.May(rbac.Update, o.As(rbac.WorkspaceState)) == nil,
	}
}

// health returns a workspace's health, which is its agents' while the workspace should run. A dev container that does
// not run leaves the workspace usable.
func health(b sdk.WorkspaceBuild) sdk.WorkspaceHealth {
	h := sdk.WorkspaceHealth{FailingAgents: []uuid.UUID{}}
	if b.Status == sdk.WorkspaceRunning {
		for _, r := range b.Resources {
			for _, a := range r.Agents {
				if !a.Health.Healthy && a.ParentID == nil {
					h.FailingAgents = append(h.FailingAgents, a.ID)
				}
			}
		}
	}
	h.Healthy = len(h.FailingAgents) == 0
	return h
}

// showBuilds returns builds as the API shows them, by id.
func (s *Service) showBuilds(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]sdk.WorkspaceBuild, error) {
	byID, err := s.opts.DB.ListBuildRowsByID(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list builds: %w", err)
	}
	rows := make([]dbsqlc.ListBuildRowsRow, len(byID))
	for i, row := range byID {
		rows[i] = dbsqlc.ListBuildRowsRow(row)
	}
	shown, err := s.showRows(ctx, rows)
	if err != nil {
		return nil, err
	}
	out := make(map[uuid.UUID]sdk.WorkspaceBuild, len(shown))
	for _, b := range shown {
		out[b.ID] = b
	}
	return out, nil
}

// showRows returns builds with their jobs and resources, in the same order.
func (s *Service) showRows(ctx context.Context, rows []dbsqlc.ListBuildRowsRow) ([]sdk.WorkspaceBuild, error) {
	q := s.opts.DB.Queries
	jobIDs := make([]uuid.UUID, len(rows))
	places := make(map[uuid.UUID]agents.Place, len(rows))
	for i, row := range rows {
		jobIDs[i] = row.JobID
		places[row.JobID] = agents.Place{Workspace: row.WorkspaceName, Owner: row.WorkspaceOwnerName}
	}
	jobs, matched, err := s.opts.Jobs.Show(ctx, q, jobIDs...)
	if err != nil {
		return nil, fmt.Errorf("show jobs: %w", err)
	}
	resources, err := s.opts.Agents.Resources(ctx, q, places)
	if err != nil {
		return nil, err
	}
	out := make([]sdk.WorkspaceBuild, len(rows))
	for i, row := range rows {
		job := jobs[row.JobID]
		out[i] = sdk.WorkspaceBuild{
			ID: row.ID, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt, WorkspaceID: row.WorkspaceID,
			WorkspaceName:    row.WorkspaceName,
			WorkspaceOwnerID: row.WorkspaceOwnerID, WorkspaceOwnerName: row.WorkspaceOwnerName,
			TemplateVersionID:       row.TemplateVersionID,
			TemplateVersionPresetID: row.TemplateVersionPresetID, TemplateVersionName: row.TemplateVersionName,
			BuildNumber: row.BuildNumber, Transition: sdk.Transition(row.Transition),
			InitiatorID: row.InitiatorID, InitiatorName: row.InitiatorName, Job: job,
			Reason: sdk.BuildReason(row.Reason), Resources: resources[row.JobID],
			Deadline: row.Deadline, MaxDeadline: row.MaxDeadline, Explanation: row.Explanation,
			Status: sdk.Transition(row.Transition).Status(job.Status), DailyCost: row.DailyCost,
			UnknownResources: row.UnknownResources, TaintedResources: row.TaintedResources,
			CredentialsWithheld: row.CredentialsWithheld, InstantClaim: row.InstantClaim,
			AllowReplacing: row.AllowReplacing, WouldReplace: row.WouldReplace,
		}
		out[i].HasExternalAgent = slices.ContainsFunc(resources[row.JobID],
			func(r sdk.WorkspaceResource) bool { return r.Type == sdk.ResourceExternalAgent })
		if m, ok := matched[row.JobID]; ok {
			out[i].MatchedProvisioners = &m
		}
	}
	return out, nil
}

// one returns a workspace as a user sees it.
func (s *Service) one(ctx context.Context, viewer rbac.Actor, id uuid.UUID) (sdk.Workspace, error) {
	e := viewer.Extent(rbac.Workspace)
	row, err := s.opts.DB.GetWorkspaceRow(ctx, dbsqlc.GetWorkspaceRowParams{
		ID: id, ViewerID: viewer.UserID, ExtentAll: e.All, ExtentOrganizations: e.Organizations, ExtentMember: e.Member,
		ExtentPrincipals: e.Principals, ExtentOnly: e.Only,
	})
	if err != nil {
		return sdk.Workspace{}, lookup.Fault(err, rbac.Workspace, "read workspace")
	}
	shown, err := s.show(ctx, viewer, []dbsqlc.ListWorkspaceRowsRow{dbsqlc.ListWorkspaceRowsRow(row)})
	if err != nil {
		return sdk.Workspace{}, err
	}
	return shown[0], nil
}
