package users

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxOrganizations bounds the organizations of a request for a new user.
const maxOrganizations = 100

// Role returns a role with its name for people, such as "Template Admin" for template-admin.
func Role(name string) sdk.Role {
	words := strings.Split(name, "-")
	for i, word := range words {
		if word != "" {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return sdk.Role{Name: name, DisplayName: strings.Join(words, " ")}
}

func toUser(u dbsqlc.User, organizations []uuid.UUID) sdk.User {
	return sdk.User{
		ID: u.ID, Username: u.Username, Name: u.Name, Email: Address(u), CreatedAt: u.CreatedAt, UpdatedAt: u.UpdatedAt,
		LastSeenAt: u.LastSeenAt, Status: sdk.UserStatus(u.Status), LoginType: sdk.LoginType(u.LoginType),
		OrganizationIDs: organizations, Roles: toRoles(u.Roles), IsServiceAccount: u.IsServiceAccount,
	}
}

func toRoles(names []string) sdk.List[sdk.Role] {
	out := sdk.List[sdk.Role]{}
	for _, name := range names {
		out = append(out, Role(name))
	}
	return out
}

// organizations returns the organizations of each user, the default one first.
func (s *Service) organizations(ctx context.Context, ids ...uuid.UUID) (map[uuid.UUID][]uuid.UUID, error) {
	rows, err := s.db.ListMemberships(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("list memberships: %w", err)
	}
	out := map[uuid.UUID][]uuid.UUID{}
	for _, row := range rows {
		out[row.UserID] = append(out[row.UserID], row.OrganizationID)
	}
	return out, nil
}

func (s *Service) write(w http.ResponseWriter, r *http.Request, status int, u dbsqlc.User) error {
	orgs, err := s.organizations(r.Context(), u.ID)
	if err != nil {
		return err
	}
	return httpapi.Write(w, status, toUser(u, orgs[u.ID]))
}

// mayJoin returns a fault unless the actor may add members to all these organizations. Those that do not exist, or that
// the actor cannot see, are refused alike.
func mayJoin(actor rbac.Actor, orgs []uuid.UUID) error {
	if len(orgs) > maxOrganizations {
		return fault.New(fault.Invalid, "The account cannot be created.").
			WithField("organization_ids", fmt.Sprintf("must be at most %d", maxOrganizations))
	}
	for _, org := range orgs {
		if err := actor.May(rbac.Create, rbac.Of(rbac.OrganizationMember, uuid.Nil).In(org)); err != nil {
			return err
		}
	}
	return nil
}

// join makes a new user a member of the organizations; of the default one if there are none. The audit log tells of
// those that were chosen: the default one is part of every new account.
func join(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User, orgs []uuid.UUID) error {
	chosen := len(orgs) > 0
	if !chosen {
		org, err := q.GetDefaultOrganization(ctx)
		if err != nil {
			return err
		}
		orgs = []uuid.UUID{org.ID}
	}
	for _, org := range orgs {
		if _, err := q.HoldOrganization(ctx, org); err != nil {
			return lookup.Fault(err, rbac.Organization, "hold organization")
		}
		m, err := q.InsertOrganizationMember(ctx,
			dbsqlc.InsertOrganizationMemberParams{OrganizationID: org, UserID: user.ID, Roles: []string{}})
		if database.IsNotFound(err) {
			continue // named twice
		}
		if err != nil {
			return err
		}
		if !chosen {
			continue
		}
		e := audit.OfMember(user, dbsqlc.OrganizationMember{}, m)
		e.Action = audit.Create // also without a request
		if err := audit.Record(ctx, q, e); err != nil {
			return err
		}
	}
	return nil
}
