package workspaces

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// record writes an entry about a workspace, or about what belongs to it, to the audit log, with what links of the log
// need.
func (s *Service) record(ctx context.Context, q *dbsqlc.Queries, e audit.Entry, w dbsqlc.Workspace) error {
	actor := httpapi.ActorFrom(ctx)
	owner := actor.Username
	if actor.UserID != w.OwnerID {
		var err error
		if owner, err = q.GetUsername(ctx, w.OwnerID); err != nil {
			return fmt.Errorf("read owner's name: %w", err)
		}
	}
	return recordOwned(ctx, q, e, w, owner)
}

// recordOwned is record for a workspace whose owner's name is known.
func recordOwned(ctx context.Context, q *dbsqlc.Queries, e audit.Entry, w dbsqlc.Workspace, owner string) error {
	if e.Name == "" {
		e.Name = w.Name
	}
	if e.Fields == nil {
		e.Fields = map[string]any{}
	}
	e.Organization, e.Fields["workspace_id"], e.Fields["workspace_name"], e.Fields["workspace_owner"] = w.OrganizationID, w.ID, w.Name, owner
	return audit.Record(ctx, q, e)
}

// auditActions are what the audit log calls transitions.
var auditActions = map[sdk.Transition]audit.Action{
	sdk.TransitionStart: audit.Start, sdk.TransitionStop: audit.Stop, sdk.TransitionDelete: audit.Delete,
}

// recordRequest records that a workspace was asked to start, stop or be deleted: by a user, or by a policy. The first
// start belongs to the workspace's creation.
func (s *Service) recordRequest(
	ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, n next, build uuid.UUID,
) error {
	if n.latest.BuildNumber == 0 {
		return nil
	}
	e := audit.Entry{
		Action: auditActions[n.req.transition], Kind: audit.Workspace, ID: w.ID, BuildReason: string(n.req.reason),
		Created: build,
		Fields:  map[string]any{"build_number": n.latest.BuildNumber + 1, "build_reason": n.req.reason},
	}
	if n.req.state != nil {
		e.Diff = audit.Diff{}.Secret("state")
	}
	if len(n.req.state) == 0 && n.req.state != nil {
		e.Fields["orphan"] = true
	}
	if len(n.req.replacing) > 0 {
		e.Fields["allow_replacing"] = n.req.replacing
	}
	e.User = n.req.account
	if n.req.priority == priorityAutomatic {
		e.By, e.Fields["automatic_actor"] = audit.ByServer, audit.ByServer
	}
	if n.req.because != "" {
		e.Fields["because"] = n.req.because
	}
	return s.record(ctx, q, e, w)
}

// recordResult records how a build ended.
func (s *Service) recordResult(
	ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow, w dbsqlc.Workspace, canceled, succeeded bool,
) error {
	e := audit.Entry{
		Action: auditActions[sdk.Transition(b.Transition)], Kind: audit.WorkspaceBuild, ID: b.ID, By: audit.ByServer,
		BuildReason: b.Reason, Status: http.StatusOK,
		Fields: map[string]any{
			"build_number": b.BuildNumber, "build_reason": b.Reason, "initiator_id": b.InitiatorID,
			"result": sdk.JobSucceeded,
		},
	}
	switch {
	case canceled:
		e.Status, e.Fields["result"] = http.StatusConflict, sdk.JobCanceled
	case !succeeded:
		e.Status, e.Fields["result"] = http.StatusInternalServerError, sdk.JobFailed
	}
	return recordOwned(ctx, q, e, w, b.OwnerName)
}
