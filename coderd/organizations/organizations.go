// Package organizations owns organizations, their members and their roles, and answers what the caller may do
// (authcheck). It knows no template, workspace, provisioner or mesh: it only counts what still belongs to an
// organization.
//
// Users cannot grant more than they have: who creates, changes or assigns a role must hold each of its powers in the
// organization. The database announces removed members and changed roles, and servers then cut what these users have
// open.
package organizations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Options configure a Service. All fields are required, except Notifications.
type Options struct {
	DB     *database.DB
	Users  *users.Service
	Logger *slog.Logger
	// Notifications records what users are told. Nil: nothing.
	Notifications *notifications.Recorder
}

// Service serves organizations. Safe for concurrent use.
type Service struct {
	db    *database.DB
	users *users.Service
	log   *slog.Logger

	notifications *notifications.Recorder
}

// New returns the service.
func New(o Options) *Service {
	return &Service{db: o.DB, users: o.Users, log: o.Logger, notifications: o.Notifications}
}

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	const (
		v2  = "/api/v2/"
		all = v2 + "organizations"
		one = all + "/{organization}"
	)
	needs := rbac.Needs
	mux.Handle("GET "+all, needs(rbac.Read, rbac.Organization), s.list)
	mux.Handle("POST "+all, needs(rbac.Create, rbac.Organization), s.create, audit.On(audit.Create, audit.Organization),
		httpapi.Creates("organizations/{created}"))
	mux.Handle("GET "+one, needs(rbac.Read, rbac.Organization), s.get)
	mux.Handle("PATCH "+one, needs(rbac.Update, rbac.Organization), s.update, audit.On(audit.Write, audit.Organization))
	mux.Handle("DELETE "+one, needs(rbac.Delete, rbac.Organization), s.remove,
		audit.On(audit.Delete, audit.Organization))
	mux.Handle("GET "+v2+"users/{user}/organizations", needs(rbac.Read, rbac.User), s.ofUser)
	mux.Handle("GET "+v2+"users/{user}/organizations/{organization}", needs(rbac.Read, rbac.User), s.oneOfUser)

	mux.Handle("GET "+one+"/settings/workspace-sharing", needs(rbac.Read, rbac.Organization), s.workspaceSharing)
	mux.Handle("PATCH "+one+"/settings/workspace-sharing", needs(rbac.Update, rbac.Organization), s.setWorkspaceSharing,
		audit.On(audit.Write, audit.Organization))

	mux.Handle("GET "+one+"/members", needs(rbac.Read, rbac.OrganizationMember), s.listMembers)
	mux.Handle("GET "+one+"/paginated-members", needs(rbac.Read, rbac.OrganizationMember), s.pageMembers)
	mux.Handle("GET "+one+"/members/{user}", needs(rbac.Read, rbac.OrganizationMember), s.getMember)
	mux.Handle("POST "+one+"/members/{user}", needs(rbac.Create, rbac.OrganizationMember), s.addMember,
		audit.On(audit.Create, audit.OrganizationMember))
	mux.Handle("DELETE "+one+"/members/{user}", needs(rbac.Delete, rbac.OrganizationMember), s.removeMember,
		audit.On(audit.Delete, audit.OrganizationMember))
	mux.Handle("PUT "+one+"/members/{user}/roles", needs(rbac.Update, rbac.OrganizationMember), s.setMemberRoles,
		audit.On(audit.Write, audit.OrganizationMember))
	mux.Handle("GET "+one+"/members/{user}/workspaces/available-users", needs(rbac.Create, rbac.Workspace),
		s.availableUsers)

	// Who may add members may invite, and withdraws invitations; only the invited user answers them.
	mux.Handle("GET "+one+"/invitations", needs(rbac.Create, rbac.OrganizationMember), s.listInvitations)
	mux.Handle("DELETE "+one+"/invitations/{user}", needs(rbac.Create, rbac.OrganizationMember), s.withdrawInvitation,
		audit.On(audit.Delete, audit.OrganizationInvitation))
	mux.Handle("GET "+v2+"users/{user}/invitations", needs(rbac.Read, rbac.OrganizationInvitation),
		s.listOwnInvitations)
	mux.Handle("POST "+v2+"users/{user}/invitations/{organization}/accept", needs(rbac.Update,
		rbac.OrganizationInvitation), s.answerInvitation(true), audit.On(audit.Write, audit.OrganizationInvitation))
	mux.Handle("POST "+v2+"users/{user}/invitations/{organization}/decline", needs(rbac.Update,
		rbac.OrganizationInvitation), s.answerInvitation(false), audit.On(audit.Write, audit.OrganizationInvitation))

	mux.Handle("GET "+one+"/members/roles", needs(rbac.Read, rbac.OrganizationRole), s.listRoles)
	mux.Handle("POST "+one+"/members/roles", needs(rbac.Create, rbac.OrganizationRole), s.createRole,
		audit.On(audit.Create, audit.CustomRole))
	mux.Handle("PUT "+one+"/members/roles", needs(rbac.Update, rbac.OrganizationRole), s.updateRole,
		audit.On(audit.Write, audit.CustomRole))
	mux.Handle("PATCH "+one+"/members/roles", needs(rbac.Update, rbac.OrganizationRole), s.updateRole,
		audit.On(audit.Write, audit.CustomRole))
	mux.Handle("DELETE "+one+"/members/roles/{name}", needs(rbac.Delete, rbac.OrganizationRole), s.removeRole,
		audit.On(audit.Delete, audit.CustomRole))

	mux.Handle("POST "+v2+"authcheck", rbac.SignedIn, s.authCheck, audit.Exempt("it only asks what the caller may do"))
}

// organization returns the organization in the path if the actor may perform the action on the resource there.
func (s *Service) organization(
	r *http.Request, action rbac.Action, resource rbac.Resource,
) (dbsqlc.Organization, error) {
	actor := httpapi.ActorFrom(r.Context())
	org, err := lookup.Organization(r, s.db.Queries, actor)
	if err != nil {
		return org, err
	}
	return org, actor.May(action, rbac.Of(resource, uuid.Nil).In(org.ID))
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	seen := httpapi.ActorFrom(r.Context()).Extent(rbac.Organization)
	rows, err := s.db.ListOrganizations(r.Context(), dbsqlc.ListOrganizationsParams{
		AllOfThem: seen.All, Ids: seen.Organizations,
	})
	if err != nil {
		return fmt.Errorf("list organizations: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, toJSONs(rows))
}

func (s *Service) ofUser(w http.ResponseWriter, r *http.Request) error {
	user, err := s.users.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	seen := httpapi.ActorFrom(r.Context()).Extent(rbac.Organization)
	rows, err := s.db.ListUserOrganizations(r.Context(), dbsqlc.ListUserOrganizationsParams{
		UserID: user.ID, AllOfThem: seen.All, Ids: seen.Organizations,
	})
	if err != nil {
		return fmt.Errorf("list a user's organizations: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, toJSONs(rows))
}

func (s *Service) oneOfUser(w http.ResponseWriter, r *http.Request) error {
	user, err := s.users.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	org, err := s.organization(r, rbac.Read, rbac.Organization)
	if err != nil {
		return err
	}
	if _, err := s.db.GetOrganizationMember(r.Context(), dbsqlc.GetOrganizationMemberParams{
		OrganizationID: org.ID, UserID: user.ID,
	}); err != nil {
		return lookup.Fault(err, rbac.Organization, "read membership")
	}
	return httpapi.Write(w, http.StatusOK, toJSON(org))
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Read, rbac.Organization)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, toJSON(org))
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	if err := actor.May(rbac.Create, rbac.Of(rbac.Organization, uuid.Nil)); err != nil {
		return err
	}
	var req sdk.CreateOrganizationRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	p := dbsqlc.InsertOrganizationParams{
		ID: uuid.New(), Name: req.Name, DisplayName: cmp.Or(strings.TrimSpace(req.DisplayName), req.Name),
		Description: req.Description, Icon: req.Icon,
	}
	if err := check(p.Name, p.DisplayName, p.Description, p.Icon); err != nil {
		return err
	}
	var org dbsqlc.Organization
	err := s.db.InTx(ctx, func(q *dbsqlc.Queries) (err error) {
		if org, err = q.InsertOrganization(ctx, p); err != nil {
			return err
		}
		if err := audit.Record(ctx, q, audit.OfOrganization(dbsqlc.Organization{}, org)); err != nil {
			return err
		}
		m, err := q.InsertOrganizationMember(ctx, dbsqlc.InsertOrganizationMemberParams{OrganizationID: org.ID, UserID: actor.UserID, Roles: []string{rbac.RoleOrganizationAdmin}})
		if err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfMember(dbsqlc.User{
			ID: actor.UserID, Username: actor.Username,
		}, dbsqlc.OrganizationMember{}, m))
	})
	if err != nil {
		return taken(err)
	}
	s.log.Info("organization created", "user", actor.Username, "organization", org.Name)
	return httpapi.Write(w, http.StatusCreated, toJSON(org))
}

func (s *Service) update(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Update, rbac.Organization)
	if err != nil {
		return err
	}
	var req sdk.UpdateOrganizationRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx, old := r.Context(), org.Name
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		now, err := q.LockOrganization(ctx, org.ID)
		if err != nil {
			return lookup.Fault(err, rbac.Organization, "lock organization")
		}
		p := dbsqlc.UpdateOrganizationParams{
			ID: now.ID, Name: cmp.Or(req.Name, now.Name),
			DisplayName: cmp.Or(strings.TrimSpace(req.DisplayName), now.DisplayName),
			Description: now.Description, Icon: now.Icon,
		}
		if req.Description != nil {
			p.Description = *req.Description
		}
		if req.Icon != nil {
			p.Icon = *req.Icon
		}
		name := p.Name
		if name == now.Name {
			name = "kept" // it may be older than the rules
		}
		if err := check(name, p.DisplayName, p.Description, p.Icon); err != nil {
			return err
		}
		if org, err = q.UpdateOrganization(ctx, p); err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfOrganization(now, org))
	})
	if err != nil {
		return taken(err)
	}
	s.log.Info("organization changed", "user", httpapi.ActorFrom(ctx).Username, "organization", org.Name, "from", old)
	return httpapi.Write(w, http.StatusOK, toJSON(org))
}

func (s *Service) remove(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Delete, rbac.Organization)
	if err != nil {
		return err
	}
	if org.IsDefault {
		return fault.New(fault.Conflict, "The default organization cannot be deleted.").
			WithDetail("New users join it. You can rename it.")
	}
	ctx := r.Context()
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		now, err := q.LockOrganization(ctx, org.ID)
		if err != nil {
			return lookup.Fault(err, rbac.Organization, "lock organization")
		}
		if err := unused(ctx, q, now); err != nil {
			return err
		}
		if err := errors.Join(
			q.DeleteOrganizationMembers(ctx, org.ID), q.DeleteOrganizationGroups(ctx, org.ID),
			q.DeleteOrganizationRoles(ctx, org.ID), q.DeleteOrganization(ctx, org.ID),
		); err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfOrganization(now, dbsqlc.Organization{}))
	})
	if err != nil {
		return fmt.Errorf("delete organization: %w", err)
	}
	s.log.Info("organization deleted", "user", httpapi.ActorFrom(ctx).Username, "organization", org.Name)
	return httpapi.Write(w, http.StatusOK, sdk.Response{
		Message: fmt.Sprintf("The organization %s has been deleted.", org.Name),
	})
}

// unused returns a fault that lists what still belongs to an organization.
func unused(ctx context.Context, q *dbsqlc.Queries, org dbsqlc.Organization) error {
	uses, err := q.CountOrganizationUses(ctx, org.ID)
	if err != nil {
		return err
	}
	var left []string
	for _, use := range []struct {
		n    int64
		what string
	}{{uses.Templates, "template"}, {uses.Workspaces, "workspace"}, {uses.ProvisionerKeys, "provisioner key"}, {uses.Provisioners, "connected provisioner"}} {
		if use.n > 0 {
			left = append(left, counted(use.n, use.what))
		}
	}
	if len(left) == 0 {
		return nil
	}
	return fault.New(fault.Conflict, "The organization %s is still in use: %s.", org.Name, strings.Join(left, ", ")).
		WithDetail("Delete these first.")
}

// counted returns "1 workspace" or "2 workspaces".
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

var nameForm = lazyregexp.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func check(name, display, description, icon string) error {
	f := fault.New(fault.Invalid, "The organization is not valid.")
	_, idErr := uuid.Parse(name)
	switch {
	case !nameForm().MatchString(name) || len(name) > 32:
		f.WithField("name", "must be at most 32 lower-case letters and digits, with single hyphens between them")
	case name == sdk.DefaultOrganization || name == "new" || idErr == nil:
		f.WithField("name", "is reserved")
	}
	if len(display) > 64 || strings.ContainsFunc(display, httpapi.Hidden) {
		f.WithField("display_name", "must have at most 64 characters, all of them visible")
	}
	if len(description) > 1024 {
		f.WithField("description", "must have at most 1024 characters")
	}
	if len(icon) > 256 {
		f.WithField("icon", "must have at most 256 characters")
	}
	if len(f.Fields) > 0 {
		return f
	}
	return nil
}

// taken returns the fault for a name that another organization has.
func taken(err error) error {
	if database.IsUniqueViolation(err, "organizations_name") {
		return fault.New(fault.Conflict, "An organization with this name already exists.").WithField("name", "is taken")
	}
	return fmt.Errorf("store organization: %w", err)
}

func toJSON(o dbsqlc.Organization) sdk.Organization {
	return sdk.Organization{
		ID: o.ID, Name: o.Name, DisplayName: cmp.Or(o.DisplayName, o.Name), Description: o.Description, Icon: o.Icon,
		CreatedAt: o.CreatedAt, UpdatedAt: o.UpdatedAt, IsDefault: o.IsDefault,
	}
}

func toJSONs(rows []dbsqlc.Organization) sdk.List[sdk.Organization] {
	out := make(sdk.List[sdk.Organization], len(rows))
	for i, row := range rows {
		out[i] = toJSON(row)
	}
	return out
}
