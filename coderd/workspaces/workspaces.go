package workspaces

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/consents"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

const (
	maxName  = 32
	maxPages = 1 << 30
	// maxList bounds the workspaces in one answer, without a limit or with a greater one. The answer's count includes
	// all.
	maxList = 1000
	minTTL  = policy.MinTTL
	maxTTL  = 30 * 24 * time.Hour
)

var nameForm = lazyregexp.New(`^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$`)

// CheckName returns a fault if a workspace cannot have the name.
func CheckName(name string) error {
	if len(name) > maxName || !nameForm().MatchString(name) {
		return fault.New(fault.Invalid, "%q is not a valid workspace name.", name).
			WithField("name",
				fmt.Sprintf("must be letters and digits with single hyphens between them, at most %d", maxName))
	}
	return nil
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	if r.PathValue("organization") != "" {
		if _, err := lookup.Organization(r, s.opts.DB.Queries, actor); err != nil {
			return err
		}
	}
	owner, err := s.user(r)
	if err != nil {
		return err
	}
	// Only those who create workspaces for others, or see the members of every organization, learn which users exist.
	if owner.ID != actor.UserID && !actor.Somewhere(rbac.Power{
		Action: rbac.Create, Resource: rbac.Workspace,
	}) && !actor.Sees(rbac.OrganizationMember, uuid.Nil) {
		return rbac.NotFound(rbac.Workspace)
	}
	var req sdk.CreateWorkspaceRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := s.opts.ExternalAuth.Freshen(ctx, owner.ID); err != nil {
		return err
	}
	var id uuid.UUID
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) (err error) {
		if id, err = s.insert(ctx, q, actor, owner, req); err != nil {
			return err
		}
		return s.notifyCreated(ctx, q, id)
	})
	if database.IsUniqueViolation(err, "workspaces_name") {
		return fault.New(fault.Conflict, "%s already has a workspace named %q.", owner.Username, req.Name).
			WithField("name", "is taken")
	}
	if err != nil {
		return fmt.Errorf("create workspace: %w", err)
	}
	made, err := s.one(ctx, actor, id)
	if err != nil {
		return err
	}
	claimed := made.LatestBuild.BuildNumber > 1
	if made.LatestBuild.Given() {
		made, err = s.given(ctx, actor, made)
	}
	if claimed {
		s.taken.Poke() // not before: the build of the next one would take the processor that the agent needs
	}
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusCreated, made)
}

// insert writes the workspace and its first build, or claims a prebuilt workspace, and returns the id.
func (s *Service) insert(
	ctx context.Context, q *dbsqlc.Queries, actor rbac.Actor, owner dbsqlc.User, req sdk.CreateWorkspaceRequest,
) (id uuid.UUID, err error) {
	if err := CheckName(req.Name); err != nil {
		return id, err
	}
	// The user's deletion counts their workspaces: either it sees this one, or this one is not created.
	if _, err := q.HoldUser(ctx, owner.ID); err != nil {
		return id, lookup.Fault(err, rbac.User, "hold owner")
	}
	t, err := requestedTemplate(ctx, q, actor, req)
	if err != nil {
		return id, err
	}
	if err := actor.May(rbac.Create, rbac.Of(rbac.Workspace, owner.ID).In(t.OrganizationID)); err != nil {
		return id, err
	}
	if owner.Status == string(sdk.UserSuspended) {
		return id, fault.New(fault.Conflict, "%s is suspended and cannot have new workspaces.", owner.Username)
	}
	// The removal of a member counts their workspaces, as the user's deletion does.
	if _, err := q.HoldOrganizationMember(ctx, dbsqlc.HoldOrganizationMemberParams{
		OrganizationID: t.OrganizationID, UserID: owner.ID,
	}); err != nil {
		if database.IsNotFound(err) {
			return id, fault.New(fault.Invalid, "%s is not a member of the template's organization.", owner.Username).
				WithDetail("An administrator of the organization can add them: coder organizations members add %s",
					shell.POSIX(owner.Username))
		}
		return id, fmt.Errorf("hold member: %w", err)
	}
	if t.Deprecated != "" {
		return id, fault.New(fault.Conflict, "The template %q is deprecated.", t.Name).WithDetail("%s", t.Deprecated)
	}
	p := dbsqlc.InsertWorkspaceParams{
		ID: uuid.New(), OrganizationID: t.OrganizationID, OwnerID: owner.ID, TemplateID: t.ID, Name: req.Name,
		AutomaticUpdates: string(sdk.UpdatesNever),
	}
	rules, err := q.GetTemplatePolicy(ctx, t.ID)
	if err != nil {
		return id, fmt.Errorf("read policy: %w", err)
	}
	if req.AutostartSchedule != nil && *req.AutostartSchedule != "" {
		if err := checkAutostart(rules, *req.AutostartSchedule); err != nil {
			return id, err
		}
		p.AutostartSchedule = req.AutostartSchedule
	}
	switch {
	case req.TTLMillis != nil:
		if p.TtlSeconds, err = ttl(req.TTLMillis); err != nil {
			return id, err
		}
		if err := checkTTL(t.DefaultTtlSeconds, rules, p.TtlSeconds); err != nil {
			return id, err
		}
	case t.DefaultTtlSeconds > 0:
		p.TtlSeconds = &t.DefaultTtlSeconds
	}
	if req.AutomaticUpdates != "" {
		if err := checkUpdates(req.AutomaticUpdates); err != nil {
			return id, err
		}
		p.AutomaticUpdates = string(req.AutomaticUpdates)
	}
	if claimed, err := s.claim(ctx, q, actor, t, p, req); err != nil || claimed != uuid.Nil {
		return claimed, err
	}
	made, err := q.InsertWorkspace(ctx, p)
	if err != nil {
		return id, err
	}
	if err := s.record(ctx, q, audit.OfWorkspace(dbsqlc.Workspace{}, made), made); err != nil {
		return id, err
	}
	_, err = s.build(ctx, q, made, buildRequest{
		transition: sdk.TransitionStart, version: req.TemplateVersionID, preset: req.TemplateVersionPresetID, given: req.RichParameterValues,
		initiator: actor.UserID, reason: sdk.ReasonInitiator, anyVersion: mayChange(actor, t), tags: req.ProvisionerTags,
		byHand: consents.ByHand(actor, owner.ID),
	})
	return made.ID, err
}

// requestedTemplate returns the template that a request names, directly or by a version. The template cannot be deleted
// until the transaction ends.
func requestedTemplate(
	ctx context.Context, q *dbsqlc.Queries, actor rbac.Actor, req sdk.CreateWorkspaceRequest,
) (dbsqlc.Template, error) {
	id := req.TemplateID
	if req.TemplateVersionID != uuid.Nil {
		v, err := q.GetTemplateVersion(ctx, req.TemplateVersionID)
		if database.IsNotFound(err) || err == nil && (v.TemplateID == nil || id != uuid.Nil && *v.TemplateID != id) {
			return dbsqlc.Template{}, fault.New(fault.Invalid, "The template version does not exist.").
				WithField("template_version_id", "does not exist")
		}
		if err != nil {
			return dbsqlc.Template{}, fmt.Errorf("read template version: %w", err)
		}
		id = *v.TemplateID
	}
	if id == uuid.Nil {
		return dbsqlc.Template{}, fault.New(fault.Invalid, "A workspace needs a template.").
			WithField("template_id", "is required")
	}
	t, err := q.HoldTemplate(ctx, id)
	if database.IsNotFound(err) || err == nil && actor.May(rbac.Use, rbac.Of(rbac.Template, uuid.Nil).In(t.OrganizationID).SharedWith(t.Sharing).WithID(t.ID)) != nil {
		return t, fault.New(fault.Invalid, "The template does not exist.").WithField("template_id", "does not exist")
	}
	if err != nil {
		return t, fmt.Errorf("read template: %w", err)
	}
	if req.TemplateVersionID == uuid.Nil {
		return t, nil
	}
	v, err := q.GetTemplateVersion(ctx, req.TemplateVersionID) // as it is while the template is held
	if err != nil {
		return t, fmt.Errorf("read template version: %w", err)
	}
	return t, templates.RefuseArchived(v)
}

// mayChange reports whether the actor may change a template.
func mayChange(actor rbac.Actor, t dbsqlc.Template) bool {
	return actor.May(rbac.Update, templates.Object(t)) == nil
}

// user returns the user in the path. An unknown user gets the same answer as an unknown workspace, so that names cannot
// be guessed.
func (s *Service) user(r *http.Request) (dbsqlc.User, error) {
	u, err := s.opts.Users.Find(r.Context(), httpapi.ActorFrom(r.Context()), r.PathValue("user"))
	if fault.CodeOf(err) == fault.NotFound {
		return u, rbac.NotFound(rbac.Workspace)
	}
	return u, err
}

// object returns the workspace as an object of permissions.
func object(w dbsqlc.Workspace) rbac.Object {
	return rbac.Of(rbac.Workspace, w.OwnerID).In(w.OrganizationID).SharedWith(w.Sharing).WithID(w.ID)
}

// workspace returns the workspace in the path if the actor may perform the action on it.
func (s *Service) workspace(r *http.Request, action rbac.Action) (dbsqlc.Workspace, error) {
	id, err := httpapi.PathUUID(r, "workspace")
	if err != nil {
		return dbsqlc.Workspace{}, err
	}
	s.guard(r, id, action, rbac.Workspace)
	w, err := s.allowed(r.Context(), httpapi.ActorFrom(r.Context()), id, action, rbac.Workspace)
	if err != nil {
		return w, err
	}
	if unclaimed(w) && action != rbac.Read {
		return w, refusePrebuilt(w)
	}
	if w.DeletedAt != nil && action != rbac.Read {
		return w, fault.New(fault.Conflict, "The workspace %q is deleted.", w.Name)
	}
	return w, nil
}

// allowed returns a workspace if the actor may perform the action on the resource that it is, or that belongs to it.
func (s *Service) allowed(
	ctx context.Context, actor rbac.Actor, id uuid.UUID, action rbac.Action, resource rbac.Resource,
) (dbsqlc.Workspace, error) {
	w, err := s.opts.DB.GetWorkspace(ctx, id)
	if err != nil {
		return w, lookup.Fault(err, rbac.Workspace, "read workspace")
	}
	return w, actor.May(action, object(w).As(resource))
}

// guard ends the request when its actor loses the right to the action.
func (s *Service) guard(r *http.Request, id uuid.UUID, action rbac.Action, resource rbac.Resource) {
	httpapi.AddGuard(r.Context(), func(ctx context.Context, actor rbac.Actor) error {
		_, err := s.allowed(ctx, actor, id, action, resource)
		return err
	})
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.workspace(r, rbac.Read)
	if err != nil {
		return err
	}
	deleted, err := httpapi.QueryBool(r, "include_deleted")
	if err != nil {
		return err
	}
	if ws.DeletedAt != nil && !deleted {
		return fault.New(fault.NotFound, "The workspace %q is deleted.", ws.Name)
	}
	out, err := s.one(r.Context(), httpapi.ActorFrom(r.Context()), ws.ID)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// named returns the workspace in the path by owner and name if the actor may read it.
func (s *Service) named(r *http.Request) (dbsqlc.Workspace, error) {
	owner, err := s.user(r)
	if fault.CodeOf(err) == fault.NotFound && r.PathValue("user") == sdk.PrebuildsOwner {
		owner, err = dbsqlc.User{ID: sdk.PrebuildsOwnerID}, nil
	}
	if err != nil {
		return dbsqlc.Workspace{}, err
	}
	deleted, err := httpapi.QueryBool(r, "include_deleted")
	if err != nil {
		return dbsqlc.Workspace{}, err
	}
	w, err := s.opts.DB.GetWorkspaceByOwnerAndName(r.Context(), dbsqlc.GetWorkspaceByOwnerAndNameParams{
		OwnerID: owner.ID, Name: r.PathValue("workspacename"), IncludeDeleted: deleted,
	})
	if err != nil {
		return w, lookup.Fault(err, rbac.Workspace, "look up workspace")
	}
	return w, httpapi.ActorFrom(r.Context()).May(rbac.Read, object(w)) // no request by name stays open
}

func (s *Service) getByName(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.named(r)
	if err != nil {
		return err
	}
	out, err := s.one(r.Context(), httpapi.ActorFrom(r.Context()), ws.ID)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

var statuses = []sdk.WorkspaceStatus{
	sdk.WorkspacePending, sdk.WorkspaceStarting, sdk.WorkspaceRunning, sdk.WorkspaceStopping, sdk.WorkspaceStopped, sdk.WorkspaceFailed,
	sdk.WorkspaceCanceling, sdk.WorkspaceCanceled, sdk.WorkspaceDeleting, sdk.WorkspaceDeleted,
}

var orders = []sdk.WorkspaceOrder{sdk.OrderName, sdk.OrderUsed, sdk.OrderCreated, sdk.OrderStatus, sdk.OrderOwner, sdk.OrderTemplate}

// readable returns a query for the workspaces that the actor may read.
func readable(actor rbac.Actor) dbsqlc.ListWorkspaceRowsParams {
	e := actor.Extent(rbac.Workspace)
	return dbsqlc.ListWorkspaceRowsParams{
		ViewerID: actor.UserID, ExtentAll: e.All, ExtentOrganizations: e.Organizations, ExtentMember: e.Member,
		ExtentPrincipals: e.Principals, ExtentOnly: e.Only,
	}
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	p, err := s.filter(ctx, actor, r.URL.Query().Get("q"))
	if err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(r, "limit", 0, maxPages)
	if err != nil {
		return err
	}
	offset, err := httpapi.QueryInt(r, "offset", 0, maxPages)
	if err != nil {
		return err
	}
	if limit == 0 || limit > maxList {
		limit = maxList
	}
	if p.Sort = r.URL.Query().Get("sort"); p.Sort != "" && !slices.Contains(orders, sdk.WorkspaceOrder(p.Sort)) {
		return fault.New(fault.Invalid, "Workspaces cannot be sorted by %q.", p.Sort).
			WithField("sort", "must be name, used, created, status, owner or template")
	}
	rows, err := s.page(ctx, p, limit, offset)
	if err != nil {
		return fmt.Errorf("list workspaces: %w", err)
	}
	count, err := s.count(ctx, p)
	if err != nil {
		return err
	}
	out := sdk.WorkspacesResponse{Count: count}
	if out.Workspaces, err = s.show(ctx, actor, rows); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// page returns one page of a list. In the list's own order, the viewer's favorites come first. They are few, and are
// listed by their ids, so that all others can be read in the order of an index.
func (s *Service) page(
	ctx context.Context, p dbsqlc.ListWorkspaceRowsParams, limit, offset int,
) ([]dbsqlc.ListWorkspaceRowsRow, error) {
	if p.Sort != "" {
		p.PageLimit, p.PageOffset = int32(limit), int32(offset)
		return s.opts.DB.ListWorkspaceRows(ctx, p)
	}
	favorites, err := s.opts.DB.ListFavorites(ctx, p.ViewerID)
	if err != nil {
		return nil, fmt.Errorf("list favorites: %w", err)
	}
	first, rest := p, p
	first.PageLimit, first.PageOffset = int32(limit), int32(offset)
	rest.ExceptIds = favorites
	if first.Ids = favorites; p.Ids != nil {
		first.Ids = slices.DeleteFunc(slices.Clone(favorites),
			func(id uuid.UUID) bool { return !slices.Contains(p.Ids, id) })
	}
	var rows []dbsqlc.ListWorkspaceRowsRow
	found := 0 // favorites on this page and those before it
	if len(first.Ids) > 0 {
		if rows, err = s.opts.DB.ListWorkspaceRows(ctx, first); err != nil || len(rows) == limit {
			return rows, err
		}
		if found = offset + len(rows); len(rows) == 0 && offset > 0 {
			if found, err = s.count(ctx, first); err != nil {
				return nil, err
			}
		}
	}
	rest.PageLimit, rest.PageOffset = int32(limit-len(rows)), int32(max(0, offset-found))
	others, err := s.opts.DB.ListWorkspaceRows(ctx, rest)
	return append(rows, others...), err
}

// count returns how many workspaces a list has on all pages.
func (s *Service) count(ctx context.Context, p dbsqlc.ListWorkspaceRowsParams) (int, error) {
	n, err := s.opts.DB.CountWorkspaceRows(ctx, dbsqlc.CountWorkspaceRowsParams{
		ViewerID: p.ViewerID, Ids: p.Ids, IncludeDeleted: p.IncludeDeleted, OwnerID: p.OwnerID, ExtentAll: p.ExtentAll,
		ExtentOrganizations: p.ExtentOrganizations, ExtentMember: p.ExtentMember, ExtentPrincipals: p.ExtentPrincipals,
		ExtentOnly:     p.ExtentOnly,
		OrganizationID: p.OrganizationID, Shared: p.Shared, SharedWith: p.SharedWith, NotOwnerID: p.NotOwnerID,
		OwnerName: p.OwnerName, Name: p.Name,
		TemplateName: p.TemplateName, Dormant: p.Dormant, Outdated: p.Outdated, Status: p.Status,
		UsedBefore: p.UsedBefore, UsedAfter: p.UsedAfter, Params: p.Params, AgentStatus: p.AgentStatus,
		Healthy: p.Healthy, External: p.External,
	})
	if err != nil {
		return 0, fmt.Errorf("count workspaces: %w", err)
	}
	return int(n), nil
}
