package groups

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxShared bounds with how many users and groups one object can be shared: the list is part of the object's row, and
// large numbers of users belong in a group.
const maxShared = 500

// Change asks for other levels of sharing, by the ids of users and groups. "" ends the sharing with one.
type Change struct {
	Users, Groups map[string]string
	// UsersField and GroupsField are the names of the request's fields, for error messages.
	UsersField, GroupsField string
}

// Share returns the sharing of an object after a change. Only members and groups of the object's organization can be
// given access. It returns the fault Invalid for anything else, and changes nothing in the database; the members and
// groups stay until the transaction ends.
func Share(
	ctx context.Context, q *dbsqlc.Queries, organization uuid.UUID, current rbac.Sharing, c Change,
) (rbac.Sharing, error) {
	refused := fault.New(fault.Invalid, "The sharing is invalid.")
	changed := maps.Clone(current)
	if changed == nil {
		changed = rbac.Sharing{}
	}
	// read applies one of the maps, and returns the ids that are given access.
	read := func(roles map[string]string, field string) (added []uuid.UUID) {
		for _, text := range slices.Sorted(maps.Keys(roles)) {
			id, err := uuid.Parse(text)
			if err != nil {
				refused.WithField(field, fmt.Sprintf("%q must be a UUID", shorten(text)))
				continue
			}
			switch role := roles[text]; role {
			case "":
				delete(changed, id)
			case sdk.RoleUse, sdk.RoleAdmin:
				changed[id] = rbac.Level(role)
				added = append(added, id)
			default:
				refused.WithField(field, fmt.Sprintf("%s cannot have the role %q: use use, admin, or an empty role to end the sharing", text, shorten(role)))
			}
		}
		return added
	}
	users, groups := read(c.Users, c.UsersField), read(c.Groups, c.GroupsField)
	if len(changed) > maxShared {
		return nil, fault.New(fault.Invalid, "An object can be shared with at most %d users and groups.", maxShared).
			WithDetail("Share it with a group instead.")
	}
	if len(refused.Fields) > 0 {
		return nil, refused
	}
	members, err := q.HoldOrganizationMembers(ctx, dbsqlc.HoldOrganizationMembersParams{
		OrganizationID: organization, Users: users,
	})
	if err != nil {
		return nil, fmt.Errorf("look up members: %w", err)
	}
	known, err := q.HoldGroups(ctx, dbsqlc.HoldGroupsParams{OrganizationID: organization, Ids: groups})
	if err != nil {
		return nil, fmt.Errorf("look up groups: %w", err)
	}
	for _, id := range users {
		if !slices.Contains(members, id) {
			refused.WithField(c.UsersField, id.String()+" is not a member of the organization")
		}
	}
	for _, id := range groups {
		if !slices.Contains(known, id) {
			refused.WithField(c.GroupsField, id.String()+" is not a group of the organization")
		}
	}
	if len(refused.Fields) > 0 {
		return nil, refused
	}
	return changed, nil
}

// shorten keeps a client's text short enough to be repeated in an error.
func shorten(text string) string {
	if len(text) > 64 {
		return text[:64] + "…"
	}
	return text
}

// Shared lists with whom an object is shared.
type Shared struct {
	Users  []SharedUser
	Groups []SharedGroup
}

// SharedUser is a user with a level of sharing.
type SharedUser struct {
	User  sdk.ReducedUser
	Level rbac.Level
}

// SharedGroup is a group with a level of sharing.
type SharedGroup struct {
	Group sdk.Group
	Level rbac.Level
}

// Resolve returns the users and groups of an organization that a sharing names, as the viewer may see them, by name.
func Resolve(
	ctx context.Context, q *dbsqlc.Queries, viewer rbac.Actor, organization uuid.UUID, sharing rbac.Sharing,
) (Shared, error) {
	var out Shared
	ids := slices.Collect(maps.Keys(sharing))
	if len(ids) == 0 {
		return out, nil
	}
	users, err := q.ListSharingUsers(ctx, dbsqlc.ListSharingUsersParams{OrganizationID: organization, Ids: ids})
	if err != nil {
		return out, fmt.Errorf("list users: %w", err)
	}
	for _, u := range users {
		out.Users = append(out.Users, SharedUser{reduced(viewer, u), sharing[u.ID]})
	}
	groups, err := list(ctx, q, viewer, dbsqlc.ListGroupRowsParams{
		Ids: ids, OrganizationID: &organization, ExtentAll: true,
	}, listMembers)
	if err != nil {
		return out, err
	}
	for _, g := range groups {
		out.Groups = append(out.Groups, SharedGroup{g, sharing[g.ID]})
	}
	return out, nil
}

// Available returns with whom objects of an organization can be shared: the first of the members, and the groups.
// search selects them by name; "" means all.
func Available(
	ctx context.Context, q *dbsqlc.Queries, viewer rbac.Actor, organization uuid.UUID, search string,
) (sdk.ACLAvailable, error) {
	var out sdk.ACLAvailable
	users, err := q.ListSharingUsers(ctx, dbsqlc.ListSharingUsersParams{
		OrganizationID: organization, Search: search, PageLimit: maxPage,
	})
	if err != nil {
		return out, fmt.Errorf("list users: %w", err)
	}
	for _, u := range users {
		out.Users = append(out.Users, reduced(viewer, u))
	}
	groups, err := list(ctx, q, viewer, dbsqlc.ListGroupRowsParams{
		OrganizationID: &organization, Search: search, ExtentAll: true,
	}, listMembers)
	out.Groups = groups
	return out, err
}

// reduced returns a user as another may see them: the address only if they may see the account.
func reduced(viewer rbac.Actor, u dbsqlc.User) sdk.ReducedUser {
	out := sdk.ReducedUser{
		MinimalUser: sdk.MinimalUser{ID: u.ID, Username: u.Username, Name: u.Name}, CreatedAt: u.CreatedAt,
		UpdatedAt:  u.UpdatedAt,
		LastSeenAt: u.LastSeenAt, Status: sdk.UserStatus(u.Status), LoginType: sdk.LoginType(u.LoginType),
	}
	if viewer.Current().May(rbac.Read, rbac.Of(rbac.User, u.ID)) == nil {
		out.Email = u.Email
	}
	return out
}
