package workspaces

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/consents"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxState bounds Terraform's state in a request, in bytes of JSON: 768 MiB of state. Only owners of the deployment
// send one.
const maxState = 1 << 30

// buildRequestOf checks a request and turns it into a build to make.
func (s *Service) buildRequestOf(
	ctx context.Context, actor rbac.Actor, ws dbsqlc.Workspace, req sdk.CreateBuildRequest,
) (buildRequest, error) {
	t, err := s.opts.DB.GetTemplate(ctx, ws.TemplateID)
	if err != nil {
		return buildRequest{}, fmt.Errorf("read template: %w", err)
	}
	out := buildRequest{
		transition: req.Transition, version: req.TemplateVersionID, preset: req.TemplateVersionPresetID, given: req.RichParameterValues,
		initiator: actor.UserID, reason: req.Reason, logLevel: req.LogLevel, priority: priorityPerson, tags: req.ProvisionerTags, anyVersion: mayChange(actor, t),
		byHand: consents.ByHand(actor, ws.OwnerID), replacing: req.AllowReplacing,
	}
	refused := fault.New(fault.Invalid, "The build request is invalid.")
	switch req.Transition {
	case sdk.TransitionStart, sdk.TransitionStop, sdk.TransitionDelete:
	default:
		refused.WithField("transition", "must be start, stop or delete")
	}
	if out.reason == "" {
		out.reason = sdk.ReasonInitiator
	} else if !slices.Contains(reasons, out.reason) {
		refused.WithField("reason", "cannot be set by clients")
	}
	if req.LogLevel != "" && req.LogLevel != string(sdk.LogDebug) {
		refused.WithField("log_level", "must be empty or debug")
	}
	if req.DryRun {
		refused.WithField("dry_run", "is not supported for builds: use a dry run of the template version")
	}
	if req.Orphan && req.Transition != sdk.TransitionDelete {
		refused.WithField("orphan", "requires the transition delete")
	}
	if req.Orphan && len(req.ProvisionerState) > 0 {
		refused.WithField("state", "cannot be given with orphan")
	}
	if req.AllowReplacing != nil && req.Transition == sdk.TransitionDelete {
		refused.WithField("allow_replacing", "requires the transition start or stop")
	}
	if len(req.AllowReplacing) > maxReplacing {
		refused.WithField("allow_replacing", fmt.Sprintf("must have at most %d addresses", maxReplacing))
	}
	if len(refused.Fields) > 0 {
		return out, refused
	}
	if err := actor.InScope("workspace:" + string(req.Transition)); err != nil {
		return out, err
	}
	if len(req.AllowReplacing) > 0 {
		if err := mayReplace(actor, ws); err != nil {
			return out, err
		}
	}
	if req.Transition == sdk.TransitionDelete {
		if err := actor.May(rbac.Delete, object(ws)); err != nil {
			return out, err
		}
	}
	switch {
	case req.Orphan:
		// Orphaned resources may keep running and cost money: those who manage the template decide.
		if !out.anyVersion {
			return out, fault.New(fault.Forbidden, "You do not have permission to orphan resources.").
				WithDetail("Requires the role %s. Ask an owner of the deployment.", rbac.RoleTemplateAdmin)
		}
		out.state = []byte{}
	case len(req.ProvisionerState) > 0:
		if err := actor.May(rbac.Update, object(ws).As(rbac.WorkspaceState)); err != nil {
			return out, fault.New(fault.Forbidden, "You do not have permission to replace Terraform's state.").
				WithField("state", "requires the role owner")
		}
		out.state, out.forceState = req.ProvisionerState, req.ForceState
	}
	out.gone, err = s.lostValues(ctx, ws, t, out)
	return out, err
}

func (s *Service) createBuild(w http.ResponseWriter, r *http.Request) error {
	actor := httpapi.ActorFrom(r.Context())
	ws, err := s.buildable(r)
	if err != nil {
		return err
	}
	var req sdk.CreateBuildRequest
	if actor.May(rbac.Update, object(ws).As(rbac.WorkspaceState)) == nil {
		err = readState(w, r, &req)
	} else {
		err = httpapi.Read(w, r, &req)
	}
	if err != nil {
		return err
	}
	build, err := s.buildRequestOf(r.Context(), actor, ws, req)
	if err != nil {
		return err
	}
	return s.createLocked(w, r, ws, func(ctx context.Context, q *dbsqlc.Queries, locked dbsqlc.Workspace) (uuid.UUID, error) {
		return s.build(ctx, q, locked, build)
	})
}

// buildable returns the workspace that a request names, if the actor may build it.
func (s *Service) buildable(r *http.Request) (dbsqlc.Workspace, error) {
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return ws, err
	}
	return ws, httpapi.ActorFrom(r.Context()).May(rbac.Create, object(ws).As(rbac.WorkspaceBuild))
}

// createLocked creates a build in a transaction that has locked its workspace, and writes the build.
func (s *Service) createLocked(w http.ResponseWriter, r *http.Request, ws dbsqlc.Workspace, create func(context.Context, *dbsqlc.Queries, dbsqlc.Workspace) (uuid.UUID, error)) error {
	ctx := r.Context()
	if err := s.opts.ExternalAuth.Freshen(ctx, ws.OwnerID); err != nil {
		return err
	}
	var id uuid.UUID
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		locked, err := q.LockWorkspace(ctx, ws.ID)
		if err != nil {
			return err
		}
		id, err = create(ctx, q, locked)
		return err
	})
	if err != nil {
		return fmt.Errorf("create build: %w", err)
	}
	return s.writeBuild(w, r, http.StatusCreated, id)
}

// readState is httpapi.Read for bodies that contain a state.
func readState(w http.ResponseWriter, r *http.Request, v any) error {
	httpapi.AllowUpload(r)
	return httpapi.ReadUpTo(w, r, maxState, v)
}

func (s *Service) writeBuild(w http.ResponseWriter, r *http.Request, status int, id uuid.UUID) error {
	shown, err := s.showBuilds(r.Context(), []uuid.UUID{id})
	if err != nil {
		return err
	}
	return httpapi.Write(w, status, shown[id])
}

func (s *Service) listBuilds(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return err
	}
	p := dbsqlc.ListBuildRowsParams{WorkspaceID: ws.ID}
	limit, err := httpapi.QueryInt(r, "limit", 0, maxPages)
	if err != nil {
		return err
	}
	p.AfterID, err = httpapi.AfterID(r, func(id uuid.UUID) (bool, error) {
		b, err := s.opts.DB.GetBuild(r.Context(), id)
		if database.IsNotFound(err) {
			return false, nil
		}
		return b.WorkspaceID == ws.ID, err
	})
	if err != nil {
		return err
	}
	offset, err := httpapi.QueryInt(r, "offset", 0, maxPages)
	if err != nil {
		return err
	}
	p.PageLimit, p.PageOffset = int32(limit), int32(offset)
	if text := r.URL.Query().Get("since"); text != "" {
		since, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return fault.New(fault.Invalid, "The query parameter since cannot be %q.", text).
				WithField("since", "must be an RFC 3339 time")
		}
		p.Since = &since
	}
	rows, err := s.opts.DB.ListBuildRows(r.Context(), p)
	if err != nil {
		return fmt.Errorf("list builds: %w", err)
	}
	out, err := s.showRows(r.Context(), rows)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) getBuildByNumber(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.named(r)
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(r.PathValue("buildnumber"), 10, 32)
	if err != nil {
		return fault.New(fault.Invalid, "%q is not a build number.", r.PathValue("buildnumber")).
			WithField("buildnumber", "must be a number")
	}
	number := int32(n)
	rows, err := s.opts.DB.ListBuildRows(r.Context(), dbsqlc.ListBuildRowsParams{
		WorkspaceID: ws.ID, BuildNumber: &number,
	})
	if err != nil {
		return fmt.Errorf("look up build: %w", err)
	}
	if len(rows) == 0 {
		return rbac.NotFound(rbac.WorkspaceBuild)
	}
	return s.writeBuild(w, r, http.StatusOK, rows[0].ID)
}

// buildInPath returns the build in the path with its workspace if the actor may perform the action on the resource that
// belongs to it.
func (s *Service) buildInPath(
	r *http.Request, action rbac.Action, resource rbac.Resource,
) (dbsqlc.GetBuildRow, dbsqlc.Workspace, error) {
	id, err := httpapi.PathUUID(r, "workspacebuild")
	if err != nil {
		return dbsqlc.GetBuildRow{}, dbsqlc.Workspace{}, err
	}
	b, err := s.opts.DB.GetBuild(r.Context(), id)
	if err != nil {
		return b, dbsqlc.Workspace{}, lookup.Fault(err, rbac.WorkspaceBuild, "read build")
	}
	s.guard(r, b.WorkspaceID, rbac.Read, rbac.WorkspaceBuild)
	actor := httpapi.ActorFrom(r.Context())
	ws, err := s.allowed(r.Context(), actor, b.WorkspaceID, rbac.Read, rbac.WorkspaceBuild)
	if err != nil {
		return b, ws, err
	}
	if actor.May(action, object(ws).As(resource)) != nil {
		return b, ws, fault.New(fault.Forbidden, "You do not have permission to %s this %s.", action, resource)
	}
	return b, ws, nil
}

func (s *Service) getBuild(w http.ResponseWriter, r *http.Request) error {
	b, _, err := s.buildInPath(r, rbac.Read, rbac.WorkspaceBuild)
	if err != nil {
		return err
	}
	return s.writeBuild(w, r, http.StatusOK, b.ID)
}

func (s *Service) getBuildParameters(w http.ResponseWriter, r *http.Request) error {
	b, ws, err := s.buildInPath(r, rbac.Read, rbac.WorkspaceBuild)
	if err != nil {
		return err
	}
	definitions, err := templates.Definitions(r.Context(), s.opts.DB.Queries, b.TemplateVersionID)
	if err != nil {
		return err
	}
	stored, found, err := s.valuesOf(r.Context(), s.opts.DB.Queries, ws.ID, b.ID, definitions)
	if err != nil {
		return err
	}
	own := httpapi.ActorFrom(r.Context()).UserID == ws.OwnerID
	out := make([]sdk.BuildParameter, len(stored)+len(found))
	for i, v := range slices.Concat(stored, found) {
		d := slices.IndexFunc(definitions, func(d templates.Definition) bool { return d.Name == v.Name })
		out[i] = sdk.BuildParameter{
			Name: v.Name, Value: v.Value, Masked: d < 0 || definitions[d].Masked(), Computed: v.computed,
		}
		if out[i].Masked && !own {
			out[i].Value = ""
		}
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) getBuildResources(w http.ResponseWriter, r *http.Request) error {
	b, _, err := s.buildInPath(r, rbac.Read, rbac.WorkspaceBuild)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListBuildRowsByID(r.Context(), []uuid.UUID{b.ID})
	if err != nil || len(rows) == 0 {
		return fmt.Errorf("read build: %w", err)
	}
	place := agents.Place{Workspace: rows[0].WorkspaceName, Owner: rows[0].WorkspaceOwnerName}
	byJob, err := s.opts.Agents.Resources(r.Context(), s.opts.DB.Queries, map[uuid.UUID]agents.Place{b.JobID: place})
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.List[sdk.WorkspaceResource](byJob[b.JobID]))
}

func (s *Service) getBuildLogs(w http.ResponseWriter, r *http.Request) error {
	b, _, err := s.buildInPath(r, rbac.Read, rbac.WorkspaceBuild)
	if err != nil {
		return err
	}
	return s.opts.Jobs.ServeLogs(w, r, b.JobID)
}

func (s *Service) getBuildState(w http.ResponseWriter, r *http.Request) error {
	b, _, err := s.buildInPath(r, rbac.Read, rbac.WorkspaceState)
	if err != nil {
		return err
	}
	state, err := s.state(r.Context(), s.opts.DB.Queries, b.WorkspaceID, b.ID)
	if err != nil {
		return err
	}
	if len(state) == 0 {
		if err := s.removed(r.Context(), b.ID, b.BuildNumber); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(state)))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	_, err = w.Write(state)
	return err
}

func (s *Service) putBuildState(w http.ResponseWriter, r *http.Request) error {
	b, ws, err := s.buildInPath(r, rbac.Update, rbac.WorkspaceState)
	if err != nil {
		return err
	}
	var req sdk.UpdateStateRequest
	if err := readState(w, r, &req); err != nil {
		return err
	}
	err = s.opts.DB.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		if _, err := q.LockWorkspace(r.Context(), ws.ID); err != nil {
			return err
		}
		latest, err := q.GetLatestBuild(r.Context(), ws.ID)
		if err != nil {
			return err
		}
		if latest.ID != b.ID {
			return fault.New(fault.Conflict, "Build %d is not the latest of the workspace %q.", b.BuildNumber, ws.Name).
				WithDetail("The next build starts from the state of build %d.", latest.BuildNumber)
		}
		if !sdk.JobStatus(latest.JobStatus).Ended() {
			return fault.New(fault.Conflict, "Build %d of the workspace %q is active.", b.BuildNumber, ws.Name).
				WithDetail("Wait until it has finished, or cancel it.")
		}
		if err := s.checkPushed(r.Context(), q, ws.ID, b.ID, req.State, req.Force); err != nil {
			return err
		}
		if err := q.UpdateBuildState(r.Context(), dbsqlc.UpdateBuildStateParams{
			ID: b.ID, State: s.opts.States.Seal(ws.ID, req.State),
		}); err != nil {
			return err
		}
		return s.record(r.Context(), q, audit.Entry{ID: b.ID, Diff: audit.Diff{}.Secret("state"), Fields: map[string]any{"build_number": b.BuildNumber}}, ws)
	})
	if err != nil {
		return fmt.Errorf("replace state: %w", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Service) cancelBuild(w http.ResponseWriter, r *http.Request) error {
	b, ws, err := s.buildInPath(r, rbac.Update, rbac.WorkspaceBuild)
	if err != nil {
		return err
	}
	if err := s.mayCancel(r.Context(), ws); err != nil {
		return err
	}
	entry := audit.Entry{ID: b.ID, Name: ws.Name, Organization: ws.OrganizationID, Fields: map[string]any{
		"build_number": b.BuildNumber, "workspace_name": ws.Name,
	}}
	if err := s.opts.Jobs.Cancel(r.Context(), b.JobID, entry); err != nil {
		return err
	}
	if err := s.opts.DB.NotifyWorkspace(r.Context(), ws.ID); err != nil {
		return fmt.Errorf("notify watchers: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The build is being canceled."})
}

// mayCancel returns a fault if the template does not let its users cancel builds, and the actor may not change the
// template.
func (s *Service) mayCancel(ctx context.Context, ws dbsqlc.Workspace) error {
	p, err := s.opts.DB.GetTemplatePolicy(ctx, ws.TemplateID)
	if err != nil {
		return fmt.Errorf("read policy: %w", err)
	}
	if p.AllowCancel {
		return nil
	}
	t, err := s.opts.DB.GetTemplate(ctx, ws.TemplateID)
	if err != nil {
		return fmt.Errorf("read template: %w", err)
	}
	if !mayChange(httpapi.ActorFrom(ctx), t) {
		return fault.New(fault.Forbidden, "The template does not let users cancel builds.").
			WithDetail("Ask a template admin.")
	}
	return nil
}
