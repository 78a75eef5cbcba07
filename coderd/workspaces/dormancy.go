package workspaces

import (
	"context"
	"fmt"
	"net/http"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// putDormant makes a workspace dormant or wakes it. The policy loop stops a dormant workspace that runs.
func (s *Service) putDormant(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	ws, err := s.workspace(r, rbac.Update)
	if err != nil {
		return err
	}
	var req sdk.UpdateDormancyRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	err = s.apply(r, rbac.Update, func(q *dbsqlc.Queries, locked dbsqlc.Workspace) error {
		if locked.DeletedAt != nil {
			return fault.New(fault.Conflict, "The workspace %q is deleted.", ws.Name)
		}
		if req.Dormant == (locked.DormantAt != nil) {
			return nil
		}
		p := dbsqlc.SetDormantParams{ID: ws.ID}
		if now := s.opts.Now(); req.Dormant {
			p.DormantAt = &now
		}
		return q.SetDormant(ctx, p)
	})
	if err != nil {
		return err
	}
	out, err := s.one(ctx, actor, ws.ID)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// resolveAutostart reports whether the next automatic start, with the version that it would use, lacks a parameter.
// Clients ask before they turn on a schedule.
func (s *Service) resolveAutostart(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return err
	}
	mismatch, err := s.autostartMismatch(r.Context(), ws)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.ResolveAutostartResponse{ParameterMismatch: mismatch})
}

func (s *Service) autostartMismatch(ctx context.Context, ws dbsqlc.Workspace) (bool, error) {
	q := s.opts.DB.Queries
	if ws.LatestVersionID == nil || ws.LatestBuildID == nil {
		return false, nil
	}
	t, err := q.GetTemplate(ctx, ws.TemplateID)
	if err != nil {
		return false, fmt.Errorf("read template: %w", err)
	}
	req := buildRequest{transition: sdk.TransitionStart, initiator: ws.OwnerID, reason: sdk.ReasonAutostart}
	version, _, err := chooseVersion(ctx, q, ws, t, ws.LatestVersionID, req)
	if err != nil {
		return false, err
	}
	_, err = s.resolve(ctx, q, ws, version.ID, *ws.LatestBuildID, req)
	if fault.CodeOf(err) == fault.Invalid {
		return true, nil
	}
	return false, err
}

// refuseDormant explains that a dormant workspace must be woken before it can start.
func refuseDormant(w dbsqlc.Workspace) error {
	return fault.New(fault.Conflict, "The workspace %q is dormant.", w.Name).
		WithDetail("Wake it first: coder start %s, or PUT /api/v2/workspaces/%s/dormant with {\"dormant\": false}.",
			shell.POSIX(w.Name), w.ID)
}
