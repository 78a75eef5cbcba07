package workspaces

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// Wake starts a stopped workspace of the actor's own, who connects to it by the name [owner/]workspace[.agent], and
// returns the build that starts it: a new one, or one that has not ended yet. It gives no consent of the owner's
// (package consents). It returns fault.NotFound if the actor owns no stopped workspace of that name, fault.Conflict if
// it is being stopped or deleted, and the faults of a start.
func (s *Service) Wake(ctx context.Context, actor rbac.Actor, name string) (build uuid.UUID, err error) {
	owner, rest, named := strings.Cut(database.Visible(name), "/")
	if !named {
		owner, rest = "", database.Visible(name)
	}
	if owner != "" && owner != sdk.Me && !strings.EqualFold(owner, actor.Username) {
		return uuid.Nil, rbac.NotFound(rbac.Workspace)
	}
	workspace, _, _ := strings.Cut(rest, ".")
	ws, err := s.opts.DB.GetWorkspaceByOwnerAndName(ctx, dbsqlc.GetWorkspaceByOwnerAndNameParams{
		OwnerID: actor.UserID, Name: workspace,
	})
	if err != nil {
		return uuid.Nil, lookup.Fault(err, rbac.Workspace, "look up workspace")
	}
	if err := actor.May(rbac.Create, object(ws).As(rbac.WorkspaceBuild)); err != nil {
		return uuid.Nil, err
	}
	if err := s.opts.ExternalAuth.Freshen(ctx, ws.OwnerID); err != nil {
		return uuid.Nil, err
	}
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		locked, err := q.LockWorkspace(ctx, ws.ID)
		if err != nil {
			return err
		}
		build, err = s.wake(ctx, q, locked, actor)
		return err
	})
	if err != nil {
		return uuid.Nil, fmt.Errorf("start workspace: %w", err)
	}
	return build, nil
}

// wake returns the build that starts a workspace whose row is locked.
func (s *Service) wake(
	ctx context.Context, q *dbsqlc.Queries, ws dbsqlc.Workspace, actor rbac.Actor,
) (uuid.UUID, error) {
	latest, err := q.GetLatestBuild(ctx, ws.ID)
	if err != nil {
		return uuid.Nil, fmt.Errorf("read latest build: %w", err)
	}
	status := sdk.JobStatus(latest.JobStatus)
	if sdk.Transition(latest.Transition) == sdk.TransitionStart {
		switch {
		case status == sdk.JobSucceeded:
			return uuid.Nil, rbac.NotFound(rbac.Workspace) // it runs
		case !status.Ended():
			return latest.ID, nil
		}
	}
	req, err := s.buildRequestOf(ctx, actor, ws, sdk.CreateBuildRequest{
		Transition: sdk.TransitionStart, Reason: sdk.ReasonSSH,
	})
	if err != nil {
		return uuid.Nil, err
	}
	req.byHand, req.account = false, &audit.Account{ID: actor.UserID, Name: actor.Username}
	return s.build(ctx, q, ws, req)
}

// Started reports whether a start has ended. It returns fault.Conflict if that failed.
func (s *Service) Started(ctx context.Context, build uuid.UUID) (ended bool, err error) {
	shown, err := s.showBuilds(ctx, []uuid.UUID{build})
	if err != nil {
		return false, err
	}
	b, ok := shown[build]
	switch status := b.Job.Status; {
	case !ok:
		return true, rbac.NotFound(rbac.WorkspaceBuild)
	case status == sdk.JobSucceeded:
		return true, nil
	case status.Ended():
		return true, fault.New(fault.Conflict, "The start of the workspace %q failed: %s", b.WorkspaceName, b.Job.Error).
			WithDetail("Its log has more: coder logs %s", shell.POSIX(b.WorkspaceOwnerName+"/"+b.WorkspaceName))
	}
	return false, nil
}
