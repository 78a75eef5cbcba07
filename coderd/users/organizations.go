package users

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/lookup"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/sdk"
)

func (s *Service) organization(r *http.Request) (dbsqlc.Organization, error) {
	return lookup.Organization(r, s.db.Queries, httpapi.ActorFrom(r.Context()))
}

func (s *Service) listOrganizations(w http.ResponseWriter, r *http.Request) error {
	seen := httpapi.ActorFrom(r.Context()).Extent(rbac.Organization)
	orgs, err := s.db.ListOrganizations(r.Context(), dbsqlc.ListOrganizationsParams{AllOfThem: seen.All, Ids: seen.Organizations})
	if err != nil {
		return fmt.Errorf("list organizations: %w", err)
	}
	out := sdk.List[sdk.Organization]{}
	for _, org := range orgs {
		out = append(out, toOrganization(org))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) getOrganization(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, toOrganization(org))
}

func (s *Service) userOrganizations(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.target(r, rbac.Read, rbac.User); err != nil {
		return err
	}
	return s.listOrganizations(w, r)
}

func (s *Service) userOrganization(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.target(r, rbac.Read, rbac.User); err != nil {
		return err
	}
	return s.getOrganization(w, r)
}

func (s *Service) listMembers(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r)
	if err != nil {
		return err
	}
	actor := httpapi.ActorFrom(r.Context())
	out := sdk.List[sdk.OrganizationMember]{}
	for offset := int32(0); ; offset += maxPage {
		rows, err := s.db.ListUsers(r.Context(), dbsqlc.ListUsersParams{Statuses: []string{}, PageLimit: maxPage, PageOffset: offset})
		if err != nil {
			return fmt.Errorf("list members: %w", err)
		}
		for _, row := range rows {
			out = append(out, toMember(actor, row.User, org))
		}
		if len(rows) < maxPage {
			return httpapi.Write(w, http.StatusOK, out)
		}
	}
}

func (s *Service) getMember(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r)
	if err != nil {
		return err
	}
	actor := httpapi.ActorFrom(r.Context())
	user, err := s.Find(r.Context(), actor, r.PathValue("user"))
	if err != nil {
		return err
	}
	if err := actor.May(rbac.Read, rbac.Of(rbac.OrganizationMember, user.ID).In(org.ID)); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, toMember(actor, user, org))
}

func toOrganization(o dbsqlc.Organization) sdk.Organization {
	return sdk.Organization{
		ID: o.ID, Name: o.Name, DisplayName: o.DisplayName, CreatedAt: o.CreatedAt, UpdatedAt: o.CreatedAt, IsDefault: o.IsDefault,
	}
}

// toMember includes the address and roles only for actors who may see the account.
func toMember(actor rbac.Actor, u dbsqlc.User, org dbsqlc.Organization) sdk.OrganizationMember {
	m := sdk.OrganizationMember{
		UserID: u.ID, OrganizationID: org.ID, CreatedAt: u.CreatedAt, UpdatedAt: u.UpdatedAt, Username: u.Username, Name: u.Name,
	}
	if actor.May(rbac.Read, object(u)) == nil {
		m.Email, m.GlobalRoles = u.Email, toRoles(u.Roles)
	}
	return m
}

func toUser(u dbsqlc.User, orgID uuid.UUID) sdk.User {
	return sdk.User{
		ID: u.ID, Username: u.Username, Name: u.Name, Email: u.Email, CreatedAt: u.CreatedAt, UpdatedAt: u.UpdatedAt,
		LastSeenAt: u.LastSeenAt, Status: sdk.UserStatus(u.Status), LoginType: sdk.LoginType(u.LoginType),
		OrganizationIDs: sdk.List[uuid.UUID]{orgID}, Roles: toRoles(u.Roles),
	}
}

func toRoles(names []string) sdk.List[sdk.Role] {
	out := sdk.List[sdk.Role]{}
	for _, name := range names {
		out = append(out, toRole(name))
	}
	return out
}

// toRole returns a role with its name for people, such as "Template Admin" for template-admin.
func toRole(name string) sdk.Role {
	words := strings.Split(name, "-")
	for i, word := range words {
		words[i] = strings.ToUpper(word[:1]) + word[1:]
	}
	return sdk.Role{Name: name, DisplayName: strings.Join(words, " ")}
}

func (s *Service) write(w http.ResponseWriter, r *http.Request, status int, u dbsqlc.User) error {
	org, err := s.db.GetDefaultOrganization(r.Context())
	if err != nil {
		return fmt.Errorf("read organization: %w", err)
	}
	return httpapi.Write(w, status, toUser(u, org.ID))
}
