package idpsync

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// actor is who changes memberships, in the audit log.
const actor = "identity provider"

// Initial are settings that the server's options give. Settings that administrators store replace those of
// organizations and groups.
type Initial struct {
	Organizations sdk.OrganizationSyncSettings
	Groups        sdk.GroupSyncSettings // of the default organization
	Site          SiteRoles
}

// Report is what a sync did, for the log. Use it after the transaction.
type Report struct {
	warnings []Warning
	kept     int // workspaces in organizations that the user left
	owner    bool
}

// Log writes the report to the server's log.
func (r Report) Log(ctx context.Context, log *slog.Logger, username string) {
	for _, w := range r.warnings {
		log.WarnContext(ctx, "claim cannot be used as it is", "user", username, "claim", w.Claim, "reason", w.Problem)
	}
	if r.kept > 0 {
		log.WarnContext(ctx, "user left organizations and owns workspaces there", "user", username, "workspaces",
			r.kept)
	}
	if r.owner {
		log.WarnContext(ctx, "the claims take the role owner from the last owner, who keeps it", "user", username)
	}
}

// Sync changes the memberships of a user to what the claims say, in a transaction that has stored the user's link to an
// identity. Several may run at once, also on several servers: the row of the link is locked.
func (s *Service) Sync(ctx context.Context, q *dbsqlc.Queries, userID uuid.UUID, c Claims) (Report, error) {
	link, err := q.LockUserLink(ctx, dbsqlc.LockUserLinkParams{UserID: userID, LoginType: string(sdk.LoginOIDC)})
	if err != nil {
		return Report{}, fmt.Errorf("lock identity: %w", err)
	}
	user, err := q.LockUserRoles(ctx, userID)
	if err != nil {
		return Report{}, fmt.Errorf("lock user: %w", err)
	}
	set, now, err := s.load(ctx, q, user, c)
	if err != nil {
		return Report{}, err
	}
	if err := json.Unmarshal(link.Synced, &now.Synced); err != nil {
		return Report{}, fmt.Errorf("decode synced memberships: %w", err)
	}
	a := apply{q: q, user: user, plan: Decide(c, set, now)}
	a.report.warnings, a.synced = a.plan.Warnings, a.plan.Synced
	for _, step := range []func(context.Context) error{a.hold, a.makeGroups, a.join, a.changeRoles, a.changeGroups, a.leave, a.siteRoles} {
		if err := step(ctx); err != nil {
			return Report{}, fmt.Errorf("sync memberships: %w", err)
		}
	}
	data, err := json.Marshal(a.synced)
	if err != nil {
		return Report{}, fmt.Errorf("encode synced memberships: %w", err)
	}
	return a.report, q.UpdateUserLinkSynced(ctx, dbsqlc.UpdateUserLinkSyncedParams{
		UserID: userID, LoginType: link.LoginType, Synced: data,
	})
}

// load reads the settings and memberships that decide about a user.
func (s *Service) load(
	ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User, c Claims,
) (set Settings, now Today, err error) {
	first, err := q.GetDefaultOrganization(ctx)
	if err != nil {
		return set, now, fmt.Errorf("read default organization: %w", err)
	}
	now = Today{Default: first.ID, Members: map[uuid.UUID][]string{}, Roles: map[uuid.UUID][]Role{}, SiteRoles: user.Roles}
	memberships, err := q.ListMemberships(ctx, []uuid.UUID{user.ID})
	if err != nil {
		return set, now, fmt.Errorf("list memberships: %w", err)
	}
	for _, m := range memberships {
		now.Members[m.OrganizationID] = m.Roles
	}
	if set, err = s.settings(ctx, q, first.ID, nil); err != nil {
		return set, now, err
	}
	mapped := []uuid.UUID{first.ID}
	for _, orgs := range set.Organizations.Mapping {
		mapped = append(mapped, orgs...)
	}
	exist, err := q.ListOrganizations(ctx, dbsqlc.ListOrganizationsParams{Ids: sorted(mapped)})
	if err != nil {
		return set, now, fmt.Errorf("list organizations: %w", err)
	}
	for _, org := range exist {
		now.Exist = append(now.Exist, org.ID)
	}
	all := sorted(append(slices.Collect(maps.Keys(now.Members)), now.Exist...))
	if set, err = s.settings(ctx, q, first.ID, all); err != nil {
		return set, now, err
	}
	if now.Roles, err = customRoles(ctx, q, set); err != nil {
		return set, now, err
	}
	now.Groups, err = nearGroups(ctx, q, user.ID, set, c)
	return set, now, err
}

// settings returns the settings of organization sync, and those of groups and roles in some organizations.
func (s *Service) settings(
	ctx context.Context, q *dbsqlc.Queries, first uuid.UUID, orgs []uuid.UUID,
) (Settings, error) {
	set := Settings{
		Organizations: s.initial.Organizations, Site: s.initial.Site,
		Groups: map[uuid.UUID]sdk.GroupSyncSettings{}, Roles: map[uuid.UUID]sdk.RoleSyncSettings{},
	}
	if slices.Contains(orgs, first) {
		set.Groups[first] = s.initial.Groups
	}
	if orgs == nil {
		orgs = []uuid.UUID{}
	}
	rows, err := q.ListSyncSettings(ctx, orgs)
	if err != nil {
		return set, fmt.Errorf("read settings of sync: %w", err)
	}
	for _, row := range rows {
		switch kind(row.Kind) {
		case ofOrganizations:
			set.Organizations = sdk.OrganizationSyncSettings{}
			err = json.Unmarshal(row.Settings, &set.Organizations)
		case ofGroups:
			var g sdk.GroupSyncSettings
			err = json.Unmarshal(row.Settings, &g)
			set.Groups[*row.OrganizationID] = g
		case ofRoles:
			var r sdk.RoleSyncSettings
			err = json.Unmarshal(row.Settings, &r)
			set.Roles[*row.OrganizationID] = r
		}
		if err != nil {
			return set, fmt.Errorf("decode settings of sync: %w", err)
		}
	}
	return set, nil
}

// customRoles returns the custom roles of the organizations that sync roles.
func customRoles(ctx context.Context, q *dbsqlc.Queries, set Settings) (map[uuid.UUID][]Role, error) {
	out := map[uuid.UUID][]Role{}
	rows, err := q.ListRolesOf(ctx, append([]uuid.UUID{}, slices.Collect(maps.Keys(set.Roles))...))
	if err != nil {
		return nil, fmt.Errorf("list custom roles: %w", err)
	}
	admin := rbac.RolePowers(rbac.RoleOrganizationAdmin)
	for _, row := range rows {
		exceeds := slices.ContainsFunc(row.Powers, func(p rbac.Power) bool { return !slices.Contains(admin, p) })
		out[row.OrganizationID] = append(out[row.OrganizationID], Role{Name: row.Name, ByName: !exceeds})
	}
	return out, nil
}

// nearGroups returns the groups that the claims or a mapping mean, and those that the user is in, of the organizations
// that sync groups.
func nearGroups(ctx context.Context, q *dbsqlc.Queries, user uuid.UUID, set Settings, c Claims) ([]Group, error) {
	p := dbsqlc.ListSyncGroupsParams{UserID: user, Organizations: []uuid.UUID{}, Names: []string{}, Ids: []uuid.UUID{}}
	for org, g := range set.Groups {
		if g.Field == "" {
			continue
		}
		p.Organizations = append(p.Organizations, org)
		v, _ := c.read(g.Field)
		names, ids := targets(g, v.all)
		p.Names, p.Ids = append(p.Names, names...), append(p.Ids, ids...)
	}
	if len(p.Organizations) == 0 {
		return nil, nil
	}
	rows, err := q.ListSyncGroups(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	out := make([]Group, len(rows))
	for i, r := range rows {
		out[i] = Group{
			ID: r.ID, Organization: r.OrganizationID, Name: r.Name, Synced: r.Source == string(sdk.GroupSourceOIDC),
			Provisioned: r.Provisioned, Member: r.Member,
		}
	}
	return out, nil
}

// apply applies a plan, in one transaction.
type apply struct {
	q      *dbsqlc.Queries
	user   dbsqlc.User
	plan   Plan
	synced Synced
	report Report

	groups map[uuid.UUID]dbsqlc.Group // held
}

func (a *apply) record(ctx context.Context, action audit.Action, e audit.Entry) error {
	e.Action, e.By = action, actor
	return audit.Record(ctx, a.q, e)
}

// hold keeps the organizations and groups from being deleted. Those that were deleted meanwhile leave the plan.
func (a *apply) hold(ctx context.Context) error {
	for _, org := range slices.Clone(a.plan.Join) {
		_, err := a.q.HoldOrganization(ctx, org)
		if database.IsNotFound(err) {
			a.plan.Join = without(a.plan.Join, []uuid.UUID{org})
			continue
		}
		if err != nil {
			return err
		}
	}
	var ids []uuid.UUID
	for _, g := range slices.Concat(a.plan.Enter, a.plan.Exit) {
		ids = append(ids, g.ID)
	}
	a.groups = map[uuid.UUID]dbsqlc.Group{}
	if len(ids) == 0 {
		return nil
	}
	held, err := a.q.HoldSyncGroups(ctx, ids)
	for _, g := range held {
		a.groups[g.ID] = g
	}
	return err
}

// makeGroups creates groups. If another sign-in creates one meanwhile, the user enters that.
func (a *apply) makeGroups(ctx context.Context) error {
	for _, g := range a.plan.Create {
		if _, err := a.q.HoldOrganization(ctx, g.Organization); database.IsNotFound(err) {
			continue
		} else if err != nil {
			return err
		}
		row, err := a.q.InsertSyncedGroup(ctx, dbsqlc.InsertSyncedGroupParams{
			ID: uuid.New(), OrganizationID: g.Organization, Name: g.Name,
		})
		if err == nil {
			err = a.record(ctx, audit.Create, audit.OfGroup(dbsqlc.Group{}, row))
		} else if database.IsNotFound(err) {
			row, err = a.q.GetGroupByName(ctx, dbsqlc.GetGroupByNameParams{
				OrganizationID: g.Organization, Name: g.Name,
			})
		}
		if err != nil {
			return fmt.Errorf("create group: %w", err)
		}
		if row.ID == row.OrganizationID {
			continue // Everyone
		}
		a.groups[row.ID] = row
		a.plan.Enter = append(a.plan.Enter, Group{ID: row.ID, Organization: row.OrganizationID, Name: row.Name})
		a.synced.Groups = append(a.synced.Groups, row.ID)
	}
	return nil
}

func (a *apply) join(ctx context.Context) error {
	for _, org := range a.plan.Join {
		m, err := a.q.InsertOrganizationMember(ctx,
			dbsqlc.InsertOrganizationMemberParams{OrganizationID: org, UserID: a.user.ID, Roles: []string{}})
		if database.IsNotFound(err) {
			continue // an administrator was faster
		}
		if err != nil {
			return err
		}
		if err := a.record(ctx, audit.Create, audit.OfMember(a.user, dbsqlc.OrganizationMember{}, m)); err != nil {
			return err
		}
	}
	return nil
}

func (a *apply) changeRoles(ctx context.Context) error {
	orgs := sorted(slices.Concat(slices.Collect(maps.Keys(a.plan.Give)), slices.Collect(maps.Keys(a.plan.Take))))
	for _, org := range orgs {
		before, err := a.q.LockOrganizationMember(ctx, dbsqlc.LockOrganizationMemberParams{
			OrganizationID: org, UserID: a.user.ID,
		})
		if database.IsNotFound(err) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		give := a.plan.Give[org]
		custom, err := a.q.HoldOrganizationRoles(ctx,
			dbsqlc.HoldOrganizationRolesParams{OrganizationID: org, Names: append([]string{}, give...)})
		if err != nil {
			return err
		}
		give = slices.DeleteFunc(slices.Clone(give), func(role string) bool { // deleted meanwhile
			return !rbac.IsOrganizationRole(role) &&
				!slices.ContainsFunc(custom, func(r dbsqlc.OrganizationRole) bool { return r.Name == role })
		})
		roles := sorted(append(without(before.Roles, a.plan.Take[org]), give...))
		if slices.Equal(roles, before.Roles) {
			continue
		}
		after, err := a.q.UpdateOrganizationMemberRoles(ctx, dbsqlc.UpdateOrganizationMemberRolesParams{
			OrganizationID: org, UserID: a.user.ID, Roles: roles,
		})
		if err != nil {
			return err
		}
		if err := a.record(ctx, audit.Write, audit.OfMember(a.user, before, after)); err != nil {
			return err
		}
	}
	return nil
}

// changeGroups enters and leaves groups. Only members of an organization enter its groups.
func (a *apply) changeGroups(ctx context.Context) error {
	users := []uuid.UUID{a.user.ID}
	for _, g := range a.plan.Exit {
		row, ok := a.groups[g.ID]
		if !ok {
			continue
		}
		if err := a.q.RemoveGroupMembers(ctx, dbsqlc.RemoveGroupMembersParams{
			GroupID: g.ID, Users: users,
		}); err != nil {
			return err
		}
		e := audit.OfGroup(row, row)
		e.Diff.Field("members_remove", "", a.user.ID.String())
		if err := a.record(ctx, audit.Write, e); err != nil {
			return err
		}
	}
	members := map[uuid.UUID]bool{}
	for _, g := range a.plan.Enter {
		row, ok := a.groups[g.ID]
		if !ok {
			continue
		}
		if _, known := members[g.Organization]; !known {
			_, err := a.q.HoldOrganizationMember(ctx, dbsqlc.HoldOrganizationMemberParams{
				OrganizationID: g.Organization, UserID: a.user.ID,
			})
			if err != nil && !database.IsNotFound(err) {
				return err
			}
			members[g.Organization] = err == nil
		}
		if !members[g.Organization] {
			continue
		}
		if err := a.q.AddGroupMembers(ctx, dbsqlc.AddGroupMembersParams{GroupID: g.ID, Users: users}); err != nil {
			return err
		}
		e := audit.OfGroup(row, row)
		e.Diff.Field("members_add", "", a.user.ID.String())
		if err := a.record(ctx, audit.Write, e); err != nil {
			return err
		}
	}
	return nil
}

// leave ends memberships. Workspaces of the user stay: their owner reaches them again when the claims return.
func (a *apply) leave(ctx context.Context) error {
	for _, org := range a.plan.Leave {
		before, err := a.q.LockOrganizationMember(ctx, dbsqlc.LockOrganizationMemberParams{
			OrganizationID: org, UserID: a.user.ID,
		})
		if database.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		n, err := a.q.CountMemberWorkspaces(ctx, dbsqlc.CountMemberWorkspacesParams{
			OrganizationID: org, OwnerID: a.user.ID,
		})
		if err != nil {
			return err
		}
		a.report.kept += int(n)
		if err := a.q.DeleteOrganizationMember(ctx, dbsqlc.DeleteOrganizationMemberParams{
			OrganizationID: org, UserID: a.user.ID,
		}); err != nil {
			return err
		}
		if err := a.record(ctx, audit.Delete, audit.OfMember(a.user, before, dbsqlc.OrganizationMember{})); err != nil {
			return err
		}
	}
	return nil
}

// siteRoles changes the roles in the deployment. The last owner stays an owner.
func (a *apply) siteRoles(ctx context.Context) error {
	roles := a.plan.SiteRoles
	if roles == nil {
		return nil
	}
	if slices.Contains(a.user.Roles, rbac.RoleOwner) && !slices.Contains(roles, rbac.RoleOwner) {
		if err := a.q.LockUsers(ctx); err != nil {
			return err
		}
		others, err := a.q.CountOtherOwners(ctx, a.user.ID)
		if err != nil {
			return err
		}
		if others == 0 {
			a.report.owner = true
			roles = sorted(append(slices.Clone(roles), rbac.RoleOwner))
		}
	}
	if slices.Equal(roles, sorted(slices.Clone(a.user.Roles))) {
		return nil
	}
	after, err := a.q.UpdateUserRoles(ctx, dbsqlc.UpdateUserRolesParams{ID: a.user.ID, Roles: roles})
	if err != nil {
		return err
	}
	return a.record(ctx, audit.Write, audit.OfUser(a.user, after))
}
