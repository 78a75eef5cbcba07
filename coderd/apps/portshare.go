package apps

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxPortShares bounds the shared ports of one workspace.
const maxPortShares = 100

// workspace returns the workspace in the path if the actor may perform the action on it.
func (s *Service) workspace(r *http.Request, action rbac.Action) (dbsqlc.Workspace, error) {
	id, err := httpapi.PathUUID(r, "workspace")
	if err != nil {
		return dbsqlc.Workspace{}, err
	}
	w, err := s.opts.DB.GetWorkspace(r.Context(), id)
	if database.IsNotFound(err) || err == nil && w.DeletedAt != nil {
		return w, rbac.NotFound(rbac.Workspace)
	}
	if err != nil {
		return w, fmt.Errorf("read workspace: %w", err)
	}
	return w, httpapi.ActorFrom(r.Context()).May(action, object(w))
}

// object returns the workspace as an object of permissions.
func object(w dbsqlc.Workspace) rbac.Object {
	return rbac.Of(rbac.Workspace, w.OwnerID).In(w.OrganizationID).SharedWith(w.Sharing).WithID(w.ID)
}

func portShareJSON(p dbsqlc.WorkspacePortShare) sdk.PortShare {
	return sdk.PortShare{
		WorkspaceID: p.WorkspaceID, AgentName: p.AgentName, Port: int(p.Port), ShareLevel: sdk.AppShare(p.ShareLevel),
		Protocol: sdk.PortShareProtocol(p.Protocol),
	}
}

func (s *Service) listPortShares(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListPortShares(r.Context(), ws.ID)
	if err != nil {
		return fmt.Errorf("list shared ports: %w", err)
	}
	out := sdk.PortShares{}
	for _, row := range rows {
		out.Shares = append(out.Shares, portShareJSON(row))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// sharePort shares a port up to the ceiling of the workspace's template. Those who may only withdraw sharing can lower
// a port's level.
func (s *Service) sharePort(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.workspace(r, rbac.Withdraw)
	if err != nil {
		return err
	}
	var req sdk.UpsertPortShareRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if req.Protocol == "" {
		req.Protocol = sdk.PortHTTP
	}
	refused := fault.New(fault.Invalid, "The port cannot be shared.")
	if req.Port < 1 || req.Port > 65535 {
		refused.WithField("port", "must be from 1 to 65535")
	}
	if !slices.Contains(sdk.PortShareLevels, req.ShareLevel) {
		refused.WithField("share_level", "must be owner, organization, authenticated or public")
	}
	if req.Protocol != sdk.PortHTTP && req.Protocol != sdk.PortHTTPS {
		refused.WithField("protocol", "must be http or https")
	}
	if len(refused.Fields) > 0 {
		return refused
	}
	var stored dbsqlc.WorkspacePortShare
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		stored, err = storePortShare(r.Context(), q, ws, req)
		return err
	})
	if err != nil {
		return fmt.Errorf("share port: %w", err)
	}
	s.places.Forget(func(appproxy.Place, found) bool { return true }) // other servers look again after a few seconds
	return httpapi.Write(w, http.StatusOK, portShareJSON(stored))
}

func storePortShare(
	ctx context.Context, q *dbsqlc.Queries, ws dbsqlc.Workspace, req sdk.UpsertPortShareRequest,
) (p dbsqlc.WorkspacePortShare, err error) {
	off, err := q.HoldOrganizationSharing(ctx, ws.OrganizationID)
	if err != nil {
		return p, fmt.Errorf("read organization: %w", err)
	}
	// The workspace's lock counts its shares one after another; the template's keeps the ceiling.
	if ws, err = q.LockWorkspace(ctx, ws.ID); err != nil {
		return p, fmt.Errorf("lock workspace: %w", err)
	}
	actor := httpapi.ActorFrom(ctx)
	if err := actor.May(rbac.Withdraw, object(ws)); err != nil { // it may have changed hands
		return p, err
	}
	t, err := q.HoldTemplate(ctx, ws.TemplateID)
	if err != nil {
		return p, fmt.Errorf("read template: %w", err)
	}
	if ceiling := sdk.AppShare(t.MaxPortShareLevel); req.ShareLevel.Exceeds(ceiling) {
		return p, fault.New(fault.Invalid, "The template %q allows ports to be shared up to the level %s.", t.Name, ceiling).
			WithField("share_level", "exceeds the template's max_port_share_level")
	}
	agent, err := q.GetAgentNameOfWorkspace(ctx, dbsqlc.GetAgentNameOfWorkspaceParams{
		WorkspaceID: &ws.ID, Name: database.Text(req.AgentName),
	})
	if database.IsNotFound(err) {
		return p, fault.New(fault.Invalid, "The workspace has no such agent.").WithField("agent_name", "does not exist")
	}
	if err != nil {
		return p, fmt.Errorf("look up agent: %w", err)
	}
	before, err := q.GetPortShare(ctx, dbsqlc.GetPortShareParams{
		WorkspaceID: ws.ID, AgentName: agent, Port: int32(req.Port),
	})
	if err != nil && !database.IsNotFound(err) {
		return p, fmt.Errorf("read port's sharing: %w", err)
	}
	if req.ShareLevel.Exceeds(cmp.Or(sdk.AppShare(before.ShareLevel), sdk.ShareOwner)) {
		if err := actor.May(rbac.Share, object(ws)); err != nil {
			return p, err
		}
		if off {
			return p, lookup.SharingOff()
		}
	}
	if n, err := q.CountPortShares(ctx, ws.ID); err != nil {
		return p, fmt.Errorf("count shared ports: %w", err)
	} else if before.Port == 0 && n >= maxPortShares {
		return p, fault.New(fault.Conflict, "The workspace already shares %d ports.", n).
			WithDetail("Stop sharing one of them first.")
	}
	p, err = q.UpsertPortShare(ctx, dbsqlc.UpsertPortShareParams{
		WorkspaceID: ws.ID, AgentName: agent, Port: int32(req.Port), ShareLevel: string(req.ShareLevel),
		Protocol: string(req.Protocol),
	})
	if err != nil {
		return p, err
	}
	return p, recordPortShare(ctx, q, ws, before, p)
}

// recordPortShare records how the sharing of a port changed, and announces it to pages. The zero value stands for a
// port that is not shared.
func recordPortShare(
	ctx context.Context, q *dbsqlc.Queries, ws dbsqlc.Workspace, before, after dbsqlc.WorkspacePortShare,
) error {
	if err := q.AnnounceWorkspace(ctx, ws.ID); err != nil {
		return fmt.Errorf("announce shared port: %w", err)
	}
	owner, err := q.GetUsername(ctx, ws.OwnerID)
	if err != nil {
		return fmt.Errorf("read owner's name: %w", err)
	}
	entry := audit.OfWorkspace(ws, ws)
	entry.Diff.Field("port_share", shared(before), shared(after))
	entry.Fields = map[string]any{"workspace_id": ws.ID, "workspace_name": ws.Name, "workspace_owner": owner}
	return audit.Record(ctx, q, entry)
}

// shared describes a shared port: "main:8080 organization http".
func shared(p dbsqlc.WorkspacePortShare) string {
	if p.Port == 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d %s %s", p.AgentName, p.Port, p.ShareLevel, p.Protocol)
}

// deletePortShare makes a port private again. The database notifies every server, which ends the requests of those who
// may no longer open it.
func (s *Service) deletePortShare(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.workspace(r, rbac.Withdraw)
	if err != nil {
		return err
	}
	var req sdk.DeletePortShareRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if req.Port < 1 || req.Port > 65535 {
		return fault.New(fault.NotFound, "This port is not shared.")
	}
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		before, err := q.DeletePortShare(r.Context(), dbsqlc.DeletePortShareParams{
			WorkspaceID: ws.ID, AgentName: database.Text(req.AgentName), Port: int32(req.Port),
		})
		if database.IsNotFound(err) {
			return fault.New(fault.NotFound, "This port is not shared.")
		}
		if err != nil {
			return err
		}
		return recordPortShare(r.Context(), q, ws, before, dbsqlc.WorkspacePortShare{})
	})
	if err != nil {
		return fmt.Errorf("stop sharing port: %w", err)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
