package workspaces

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/workspaces/statefile"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxStates is how many builds of a workspace listStates opens the states of. The server keeps ten states by default.
const maxStates = 20

// listStates lists the states that the newest builds left. It returns what identifies each, and nothing of its content.
func (s *Service) listStates(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return err
	}
	if httpapi.ActorFrom(r.Context()).May(rbac.Read, object(ws).As(rbac.WorkspaceState)) != nil {
		return fault.New(fault.Forbidden, "You do not have permission to read the states of this workspace.").
			WithDetail("Requires the role Owner.")
	}
	rows, err := s.opts.DB.ListBuildRows(r.Context(), dbsqlc.ListBuildRowsParams{
		WorkspaceID: ws.ID, PageLimit: maxStates,
	})
	if err != nil {
		return fmt.Errorf("list builds: %w", err)
	}
	out := sdk.List[sdk.StoredState]{}
	for _, row := range rows { // one at a time: a state can be large
		stored := sdk.StoredState{
			BuildID: row.ID, BuildNumber: row.BuildNumber, Transition: sdk.Transition(row.Transition),
			JobStatus: sdk.JobStatus(row.JobStatus),
			CreatedAt: row.CreatedAt, InitiatorID: row.InitiatorID, InitiatorName: row.InitiatorName,
		}
		text, err := s.usableState(r.Context(), ws.ID, row.ID, row.BuildNumber)
		switch {
		case fault.CodeOf(err) == fault.NotFound || fault.CodeOf(err) == fault.Conflict:
			stored.Problem = fault.As(err).Message
		case err != nil:
			return err
		default:
			head, _ := statefile.Read(text) // usableState has read it
			stored.Size, stored.Lineage, stored.Serial, stored.Resources = int64(len(text)), head.Lineage, head.Serial, head.Resources
		}
		out = append(out, stored)
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// usableState returns the state that a build left. It returns a fault, NotFound or Conflict, if there is none from
// which a build could start.
func (s *Service) usableState(ctx context.Context, workspace, build uuid.UUID, number int32) ([]byte, error) {
	text, err := s.state(ctx, s.opts.DB.Queries, workspace, build)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		if err := s.removed(ctx, build, number); err != nil {
			return nil, err
		}
		return nil, fault.New(fault.NotFound, "Build %d left no state.", number)
	}
	if _, err := statefile.Read(text); err != nil {
		return nil, fault.New(fault.Conflict, "The state of build %d cannot be used: %w.", number, err)
	}
	return text, nil
}

// removed returns a fault if the server has removed the state of a build.
func (s *Service) removed(ctx context.Context, build uuid.UUID, number int32) error {
	at, err := s.opts.DB.GetStateRemoved(ctx, build)
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	if at == nil {
		return nil
	}
	return fault.New(fault.NotFound, "The state of build %d was removed on %s.", number, at.UTC().Format(time.DateOnly)).
		WithDetail("The server keeps the states of the newest builds only (--build-state-retention). Choose a newer build.")
}

// restoreState builds a workspace as its latest build did, from the state that an earlier build left.
func (s *Service) restoreState(w http.ResponseWriter, r *http.Request) error {
	b, ws, err := s.buildInPath(r, rbac.Update, rbac.WorkspaceState)
	if err != nil {
		return err
	}
	actor := httpapi.ActorFrom(r.Context())
	if err := actor.May(rbac.Create, object(ws).As(rbac.WorkspaceBuild)); err != nil {
		return err
	}
	var req sdk.RestoreStateRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	text, err := s.usableState(r.Context(), ws.ID, b.ID, b.BuildNumber)
	if err != nil {
		return err
	}
	latest, err := s.opts.DB.GetLatestBuild(r.Context(), ws.ID)
	if err != nil {
		return fmt.Errorf("read latest build: %w", err)
	}
	build, err := s.buildRequestOf(r.Context(), actor, ws, sdk.CreateBuildRequest{
		TemplateVersionID: latest.TemplateVersionID, Transition: sdk.Transition(latest.Transition),
		ProvisionerState: text, ForceState: true, Reason: req.Reason,
	})
	if err != nil {
		return err
	}
	return s.createLocked(w, r, ws, func(ctx context.Context, q *dbsqlc.Queries, locked dbsqlc.Workspace) (uuid.UUID, error) {
		if locked.LatestBuildID == nil || *locked.LatestBuildID != latest.ID { // what it would do has changed meanwhile
			return uuid.Nil, fault.New(fault.Conflict, "Another build of the workspace %q began.", ws.Name).
				WithDetail("Wait until it has finished, and choose again.")
		}
		return s.build(ctx, q, locked, build)
	})
}
