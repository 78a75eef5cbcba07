package organizations

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// workspaceSharing reports whether workspaces of an organization can be shared.
func (s *Service) workspaceSharing(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Read, rbac.Organization)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.WorkspaceSharingSettings{SharingDisabled: org.SharingDisabled})
}

// setWorkspaceSharing switches the sharing of workspaces and ports off or on. Once it is off, nothing is shared: what
// was shared before is withdrawn in the same transaction, and does not come back.
func (s *Service) setWorkspaceSharing(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Update, rbac.Organization)
	if err != nil {
		return err
	}
	var req sdk.WorkspaceSharingSettings
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx := r.Context()
	withdrawn := 0
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		before, err := q.LockOrganization(ctx, org.ID)
		if err != nil {
			return lookup.Fault(err, rbac.Organization, "lock organization")
		}
		if org, err = q.SetOrganizationSharing(ctx, dbsqlc.SetOrganizationSharingParams{
			ID: org.ID, SharingDisabled: req.SharingDisabled,
		}); err != nil {
			return err
		}
		if org.SharingDisabled {
			if withdrawn, err = withdraw(ctx, q, org); err != nil {
				return err
			}
		}
		entry := audit.OfOrganization(before, org)
		if withdrawn > 0 {
			entry.Fields = map[string]any{"workspaces_no_longer_shared": withdrawn}
		}
		return audit.Record(ctx, q, entry)
	})
	if err != nil {
		return fmt.Errorf("change sharing of workspaces: %w", err)
	}
	s.log.Info("sharing of workspaces changed", "user", httpapi.ActorFrom(ctx).Username, "organization", org.Name)
	return httpapi.Write(w, http.StatusOK, req)
}

// withdraw ends the sharing of an organization's workspaces and their ports, and returns their number. Once the
// transaction commits, every server ends what users opened with it.
func withdraw(ctx context.Context, q *dbsqlc.Queries, org dbsqlc.Organization) (int, error) {
	workspaces, err := q.ListSharedWorkspaces(ctx, org.ID)
	if err != nil {
		return 0, fmt.Errorf("list shared workspaces: %w", err)
	}
	for _, ws := range workspaces {
		if err := q.DeletePortShares(ctx, ws.ID); err != nil {
			return 0, fmt.Errorf("end sharing of ports: %w", err)
		}
		after, err := q.UpdateWorkspaceSharing(ctx,
			dbsqlc.UpdateWorkspaceSharingParams{ID: ws.ID, Sharing: rbac.Sharing{}})
		if err != nil {
			return 0, fmt.Errorf("end sharing of a workspace: %w", err)
		}
		former := slices.Collect(maps.Keys(ws.Sharing))
		if err := q.AnnounceUnsharedWorkspace(ctx, dbsqlc.AnnounceUnsharedWorkspaceParams{
			WorkspaceID: ws.ID, Former: former,
		}); err != nil {
			return 0, fmt.Errorf("announce withdrawn access: %w", err)
		}
		if err := q.AnnounceWorkspace(ctx, ws.ID); err != nil {
			return 0, fmt.Errorf("announce workspace: %w", err)
		}
		if err := q.NotifyWorkspace(ctx, ws.ID); err != nil {
			return 0, fmt.Errorf("notify servers: %w", err)
		}
		entry := audit.OfWorkspace(ws, after)
		entry.Action = audit.Write
		if err := audit.Record(ctx, q, entry); err != nil {
			return 0, err
		}
	}
	return len(workspaces), nil
}
