package organizations

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxPage is the most members that one page contains.
const maxPage = 100

// maxRoles bounds the roles of one member.
const maxRoles = 50

func (s *Service) listMembers(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Read, rbac.OrganizationMember)
	if err != nil {
		return err
	}
	actor := httpapi.ActorFrom(r.Context())
	out := sdk.List[sdk.OrganizationMember]{}
	for offset := int32(0); ; offset += maxPage {
		rows, err := s.db.ListOrganizationMembers(r.Context(), dbsqlc.ListOrganizationMembersParams{
			OrganizationID: org.ID, PageLimit: maxPage, PageOffset: offset,
		})
		if err != nil {
			return fmt.Errorf("list members: %w", err)
		}
		for _, row := range rows {
			out = append(out, toMember(actor, row.User, row.OrganizationMember))
		}
		if len(rows) < maxPage {
			return httpapi.Write(w, http.StatusOK, out)
		}
	}
}

// page reads limit, offset and search, and one page of members.
func (s *Service) page(r *http.Request, org uuid.UUID, active bool) ([]dbsqlc.ListOrganizationMembersRow, int, error) {
	after, err := httpapi.AfterID(r, func(id uuid.UUID) (bool, error) {
		_, err := s.db.GetOrganizationMember(r.Context(), dbsqlc.GetOrganizationMemberParams{
			OrganizationID: org, UserID: id,
		})
		if database.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, 0, err
	}
	limit, err := httpapi.QueryInt(r, "limit", maxPage, 1<<30)
	if err != nil {
		return nil, 0, err
	}
	offset, err := httpapi.QueryInt(r, "offset", 0, 1<<30)
	if err != nil {
		return nil, 0, err
	}
	if limit == 0 || limit > maxPage {
		limit = maxPage
	}
	terms, err := httpapi.ParseSearch(r.URL.Query().Get("q"), "name", "search")
	if err != nil {
		return nil, 0, err
	}
	p := dbsqlc.ListOrganizationMembersParams{
		OrganizationID: org, Active: active, Search: terms["name"] + terms["search"] + terms[""],
	}
	page := httpapi.Page{Limit: int32(limit), Offset: int32(offset), After: after}
	rows, count, err := httpapi.Paged(page, func(page httpapi.Page) ([]dbsqlc.ListOrganizationMembersRow, error) {
		p.PageLimit, p.PageOffset, p.AfterID = page.Limit, page.Offset, page.After
		return s.db.ListOrganizationMembers(r.Context(), p)
	}, func(row dbsqlc.ListOrganizationMembersRow) int64 { return row.Total })
	if err != nil {
		return nil, 0, fmt.Errorf("list members: %w", err)
	}
	return rows, count, nil
}

func (s *Service) pageMembers(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Read, rbac.OrganizationMember)
	if err != nil {
		return err
	}
	rows, count, err := s.page(r, org.ID, false)
	if err != nil {
		return err
	}
	out := sdk.PaginatedMembers{Count: count}
	for _, row := range rows {
		out.Members = append(out.Members, toMember(httpapi.ActorFrom(r.Context()), row.User, row.OrganizationMember))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// availableUsers lists the members for whom the caller may create workspaces.
func (s *Service) availableUsers(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Read, rbac.Organization)
	if err != nil {
		return err
	}
	actor := httpapi.ActorFrom(r.Context())
	for _, owner := range []uuid.UUID{uuid.Nil, actor.UserID} {
		if actor.May(rbac.Create, rbac.Of(rbac.Workspace, owner).In(org.ID)) != nil {
			continue
		}
		rows, _, err := s.page(r, org.ID, true)
		if err != nil {
			return err
		}
		out := sdk.List[sdk.MinimalUser]{}
		for _, row := range rows {
			if owner == uuid.Nil || row.User.ID == owner {
				out = append(out, sdk.MinimalUser{ID: row.User.ID, Username: row.User.Username, Name: row.User.Name})
			}
		}
		return httpapi.Write(w, http.StatusOK, out)
	}
	return httpapi.Write(w, http.StatusOK, sdk.List[sdk.MinimalUser]{})
}

// member returns the member in the path if the actor may perform the action on members.
func (s *Service) member(
	r *http.Request, action rbac.Action,
) (org dbsqlc.Organization, user dbsqlc.User, m dbsqlc.OrganizationMember, err error) {
	if org, err = s.organization(r, action, rbac.OrganizationMember); err != nil {
		return org, user, m, err
	}
	if user, err = s.users.Find(r.Context(), httpapi.ActorFrom(r.Context()), r.PathValue("user")); err != nil {
		return org, user, m, notMember(err)
	}
	m, err = s.db.GetOrganizationMember(r.Context(), dbsqlc.GetOrganizationMemberParams{
		OrganizationID: org.ID, UserID: user.ID,
	})
	if err != nil {
		err = lookup.Fault(err, rbac.OrganizationMember, "read member")
	}
	return org, user, m, err
}

// notMember answers about unknown users as about users who are no members.
func notMember(err error) error {
	if fault.CodeOf(err) == fault.NotFound {
		return rbac.NotFound(rbac.OrganizationMember)
	}
	return err
}

func (s *Service) getMember(w http.ResponseWriter, r *http.Request) error {
	_, user, m, err := s.member(r, rbac.Read)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, toMember(httpapi.ActorFrom(r.Context()), user, m))
}

// addMember makes a user a member, at the word of who administers all users. Administrators of one organization invite
// every user whose name or id they know.
func (s *Service) addMember(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Create, rbac.OrganizationMember)
	if err != nil {
		return err
	}
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	user, err := s.users.Find(ctx, actor, r.PathValue("user"))
	if err != nil {
		return err
	}
	if actor.May(rbac.Create, rbac.Of(rbac.OrganizationMember, uuid.Nil)) != nil {
		return s.invite(w, r, org, user)
	}
	var m dbsqlc.OrganizationMember
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) (err error) {
		if m, err = addTo(ctx, q, org, user); err != nil {
			return err
		}
		return q.EndInvitations(ctx, dbsqlc.EndInvitationsParams{OrganizationID: org.ID, UserID: &user.ID})
	})
	if err != nil {
		return fmt.Errorf("add member: %w", err)
	}
	s.log.Info("member added", "user", actor.Username, "organization", org.Name, "member", user.Username)
	return httpapi.Write(w, http.StatusOK, toMember(actor, user, m))
}

func (s *Service) removeMember(w http.ResponseWriter, r *http.Request) error {
	org, user, _, err := s.member(r, rbac.Delete)
	if err != nil {
		return err
	}
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		m, err := q.LockOrganizationMember(ctx, dbsqlc.LockOrganizationMemberParams{
			OrganizationID: org.ID, UserID: user.ID,
		})
		if err != nil {
			return lookup.Fault(err, rbac.OrganizationMember, "lock member")
		}
		if err := lookup.MayGive(ctx, q, actor, org.ID, m.Roles, "roles"); err != nil {
			return err
		}
		n, err := q.CountMemberWorkspaces(ctx, dbsqlc.CountMemberWorkspacesParams{
			OrganizationID: org.ID, OwnerID: user.ID,
		})
		if err != nil {
			return err
		}
		if n > 0 {
			return fault.New(fault.Conflict, "%s still owns %s in %s.", user.Username, counted(n, "workspace"), org.Name).
				WithDetail("Delete what they own first. Its data will be lost.")
		}
		groups, err := q.ListMemberGroupNames(ctx, dbsqlc.ListMemberGroupNamesParams{
			OrganizationID: org.ID, UserID: user.ID,
		})
		if err != nil {
			return err
		}
		if err := q.DeleteOrganizationMember(ctx, dbsqlc.DeleteOrganizationMemberParams{
			OrganizationID: org.ID, UserID: user.ID,
		}); err != nil {
			return err
		}
		entry := audit.OfMember(user, m, dbsqlc.OrganizationMember{})
		if len(groups) > 0 { // they end with the membership
			entry.Diff.Field("groups", groups, []string{})
		}
		return audit.Record(ctx, q, entry)
	})
	if err != nil {
		return fmt.Errorf("remove member: %w", err)
	}
	s.log.Info("member removed", "user", actor.Username, "organization", org.Name, "member", user.Username)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Service) setMemberRoles(w http.ResponseWriter, r *http.Request) error {
	org, user, _, err := s.member(r, rbac.Update)
	if err != nil {
		return err
	}
	var req sdk.UpdateRolesRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	if user.ID == actor.UserID {
		return fault.New(fault.Invalid, "You cannot change your own roles in an organization.").
			WithDetail("Another administrator can.")
	}
	roles := []string{}
	for _, role := range req.Roles {
		if role != rbac.RelationMember && !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	if len(roles) > maxRoles {
		return fault.New(fault.Invalid, "The roles cannot be assigned.").
			WithField("roles", fmt.Sprintf("must be at most %d", maxRoles))
	}
	slices.Sort(roles)
	var m dbsqlc.OrganizationMember
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		before, err := q.LockOrganizationMember(ctx, dbsqlc.LockOrganizationMemberParams{
			OrganizationID: org.ID, UserID: user.ID,
		})
		if err != nil {
			return lookup.Fault(err, rbac.OrganizationMember, "lock member")
		}
		// Roles that stay need no power; those that are given or taken do.
		changed := slices.DeleteFunc(slices.Concat(roles, before.Roles), func(role string) bool {
			return slices.Contains(roles, role) && slices.Contains(before.Roles, role)
		})
		if err := lookup.MayGive(ctx, q, actor, org.ID, changed, "roles"); err != nil {
			return err
		}
		m, err = q.UpdateOrganizationMemberRoles(ctx, dbsqlc.UpdateOrganizationMemberRolesParams{
			OrganizationID: org.ID, UserID: user.ID, Roles: roles,
		})
		if err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfMember(user, before, m))
	})
	if err != nil {
		return fmt.Errorf("change a member's roles: %w", err)
	}
	s.log.Info("member's roles changed", "user", actor.Username, "organization", org.Name, "member", user.Username,
		"roles", strings.Join(roles, ","))
	return httpapi.Write(w, http.StatusOK, toMember(actor, user, m))
}

func toMember(actor rbac.Actor, u dbsqlc.User, m dbsqlc.OrganizationMember) sdk.OrganizationMember {
	out := sdk.OrganizationMember{
		UserID: u.ID, OrganizationID: m.OrganizationID, CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
		Username: u.Username, Name: u.Name,
		UserCreatedAt: u.CreatedAt, UserUpdatedAt: u.UpdatedAt, Roles: sdk.List[sdk.Role]{},
	}
	for _, name := range m.Roles {
		role := users.Role(name)
		role.OrganizationID = m.OrganizationID.String()
		out.Roles = append(out.Roles, role)
	}
	actor = actor.Current()
	account := actor.May(rbac.Read, rbac.Of(rbac.User, u.ID)) == nil
	if account || actor.May(rbac.Update, rbac.Of(rbac.OrganizationMember, u.ID).In(m.OrganizationID)) == nil {
		out.Email, out.Status, out.LoginType, out.LastSeenAt = users.Address(u), sdk.UserStatus(u.Status), sdk.LoginType(u.LoginType), u.LastSeenAt
	}
	if account {
		for _, name := range u.Roles {
			out.GlobalRoles = append(out.GlobalRoles, users.Role(name))
		}
	}
	return out
}
