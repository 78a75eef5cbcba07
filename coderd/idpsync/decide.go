package idpsync

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/groups"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxCreate bounds the groups that one sign-in creates.
const maxCreate = 100

// SiteRoles say which roles in the deployment users have. Without a field, administrators assign them.
type SiteRoles struct {
	Field   string
	Mapping map[string][]string
	Default []string
}

// Settings are all settings that concern one user.
type Settings struct {
	Organizations sdk.OrganizationSyncSettings
	Groups        map[uuid.UUID]sdk.GroupSyncSettings // by organization
	Roles         map[uuid.UUID]sdk.RoleSyncSettings  // by organization
	Site          SiteRoles
}

// Group is a group of an organization, as Decide sees it.
type Group struct {
	ID, Organization uuid.UUID
	Name             string
	Synced           bool // sync created it
	Provisioned      bool // SCIM changes its members
	Member           bool // the user is in it
}

// Synced are the memberships that the claims gave to a user.
type Synced struct {
	Organizations []uuid.UUID            `json:"organizations,omitempty"`
	Groups        []uuid.UUID            `json:"groups,omitempty"`
	Roles         map[uuid.UUID][]string `json:"roles,omitempty"`
}

// Today is what a user has.
type Today struct {
	Default   uuid.UUID              // the default organization
	Members   map[uuid.UUID][]string // the user's roles, by organization
	Exist     []uuid.UUID            // organizations that a mapping names and that exist
	Roles     map[uuid.UUID][]Role   // the custom roles, by organization
	Groups    []Group                // those that the claims, a mapping or the user concern; no Everyone
	SiteRoles []string
	Synced    Synced
}

// Role is a custom role of an organization.
type Role struct {
	Name string
	// ByName reports that a text without a mapping can give the role: it has no power that organization administrators
	// lack.
	ByName bool
}

// Plan is what changes. All lists are sorted.
type Plan struct {
	Join, Leave []uuid.UUID            // organizations
	Give, Take  map[uuid.UUID][]string // roles, by organization
	Enter, Exit []Group
	Create      []Group  // without ids; the user enters them
	SiteRoles   []string // nil if they stay
	Synced      Synced   // without the groups in Create
	Warnings    []Warning
}

// Decide returns what claims change. It has no effects.
func Decide(c Claims, s Settings, now Today) Plan {
	d := decision{claims: c, settings: s, now: now, warned: map[Warning]bool{}}
	d.plan.Give, d.plan.Take, d.plan.Synced.Roles = map[uuid.UUID][]string{}, map[uuid.UUID][]string{}, map[uuid.UUID][]string{}
	for _, org := range d.organizations() {
		d.roles(org)
		d.groups(org)
	}
	d.site()
	byID := func(a, b Group) int { return strings.Compare(a.ID.String(), b.ID.String()) }
	slices.SortFunc(d.plan.Enter, byID)
	slices.SortFunc(d.plan.Exit, byID)
	d.plan.Synced.Groups = sorted(d.plan.Synced.Groups)
	return d.plan
}

type decision struct {
	claims   Claims
	settings Settings
	now      Today
	plan     Plan
	warned   map[Warning]bool
}

func (d *decision) warn(w Warning) {
	if !d.warned[w] {
		d.warned[w] = true
		d.plan.Warnings = append(d.plan.Warnings, w)
	}
}

func (d *decision) read(field string) values {
	v, problems := d.claims.read(field)
	for _, w := range problems {
		d.warn(w)
	}
	return v
}

// organizations decides to which organizations the user belongs, and returns them.
func (d *decision) organizations() []uuid.UUID {
	set, today := d.settings.Organizations, sorted(slices.Collect(maps.Keys(d.now.Members)))
	if set.Field == "" {
		return today
	}
	v := d.read(set.Field)
	var want []uuid.UUID
	if set.AssignDefault {
		want = append(want, d.now.Default)
	}
	for _, text := range v.all {
		for _, org := range set.Mapping[text] {
			if slices.Contains(d.now.Exist, org) {
				want = append(want, org)
			}
		}
	}
	want = sorted(want)
	owned := slices.Clone(d.now.Synced.Organizations)
	for _, orgs := range set.Mapping {
		owned = append(owned, orgs...)
	}
	if !set.AssignDefault {
		owned = append(owned, d.now.Default)
	}
	d.plan.Join = without(want, today)
	d.plan.Synced.Organizations = want
	if v.whole {
		d.plan.Leave = without(both(today, owned), want)
	} else {
		d.plan.Synced.Organizations = sorted(slices.Concat(want, both(today, d.now.Synced.Organizations)))
	}
	return sorted(append(without(today, d.plan.Leave), d.plan.Join...))
}

// roles decides which roles the user has in an organization.
func (d *decision) roles(org uuid.UUID) {
	set, today := d.settings.Roles[org], d.now.Members[org]
	if set.Field == "" {
		return
	}
	v := d.read(set.Field)
	var want []string
	for _, text := range v.all {
		mapped, ok := set.Mapping[text]
		if !ok {
			if d.exists(org, text, true) {
				want = append(want, text)
			}
			continue
		}
		for _, role := range mapped {
			if d.exists(org, role, false) {
				want = append(want, role)
			} else {
				d.warn(Warning{set.Field, fmt.Sprintf("is mapped to the role %q, which does not exist", role)})
			}
		}
	}
	want = sorted(want)
	owned := slices.Clone(d.now.Synced.Roles[org])
	for _, mapped := range set.Mapping {
		owned = append(owned, mapped...)
	}
	synced := want
	if give := without(want, today); len(give) > 0 {
		d.plan.Give[org] = give
	}
	if !v.whole {
		synced = sorted(slices.Concat(want, both(today, d.now.Synced.Roles[org])))
	} else if take := without(both(today, owned), want); len(take) > 0 {
		d.plan.Take[org] = take
	}
	if len(synced) > 0 {
		d.plan.Synced.Roles[org] = synced
	}
}

// exists reports whether an organization has a role, and if raw, whether a text without a mapping can give it.
func (d *decision) exists(org uuid.UUID, role string, raw bool) bool {
	return rbac.IsOrganizationRole(role) ||
		slices.ContainsFunc(d.now.Roles[org], func(r Role) bool { return r.Name == role && (r.ByName || !raw) })
}

// groups decides in which groups of an organization the user is.
func (d *decision) groups(org uuid.UUID) {
	set := d.settings.Groups[org]
	if set.Field == "" {
		return
	}
	v := d.read(set.Field)
	want := map[uuid.UUID]bool{}
	byID, byName := map[uuid.UUID]Group{}, map[string]Group{}
	for _, g := range d.now.Groups {
		if g.Organization == org {
			byID[g.ID], byName[strings.ToLower(g.Name)] = g, g
		}
	}
	names, ids := targets(set, v.all)
	for _, id := range ids {
		if _, ok := byID[id]; ok {
			want[id] = true
		}
	}
	create := 0
	for _, name := range names {
		g, ok := byName[strings.ToLower(name)]
		switch {
		case ok:
			want[g.ID] = true
		case !set.AutoCreate || strings.EqualFold(name, sdk.Everyone):
		case groups.CheckName(name) != nil:
			d.warn(Warning{set.Field, fmt.Sprintf("has the value %.64q, which cannot be the name of a group", name)})
		case create == maxCreate:
			d.warn(Warning{set.Field, fmt.Sprintf("names more than %d groups that do not exist; the next sign-in creates more", maxCreate)})
		default:
			create++
			byName[strings.ToLower(name)] = Group{}
			d.plan.Create = append(d.plan.Create, Group{Organization: org, Name: name})
		}
	}
	owned := map[uuid.UUID]bool{}
	for _, id := range d.now.Synced.Groups {
		owned[id] = true
	}
	for _, mapped := range set.Mapping {
		for _, id := range mapped {
			owned[id] = true
		}
	}
	for _, g := range byID {
		switch {
		case g.Provisioned:
		case want[g.ID]:
			d.plan.Synced.Groups = append(d.plan.Synced.Groups, g.ID)
			if !g.Member {
				d.plan.Enter = append(d.plan.Enter, g)
			}
		case g.Member && !v.whole && owned[g.ID]:
			d.plan.Synced.Groups = append(d.plan.Synced.Groups, g.ID)
		case g.Member && v.whole && (g.Synced || owned[g.ID]):
			d.plan.Exit = append(d.plan.Exit, g)
		}
	}
}

// targets returns the names and ids of the groups that texts mean.
func targets(set sdk.GroupSyncSettings, texts []string) (names []string, ids []uuid.UUID) {
	matches := matching(set.RegexFilter)
	for _, text := range texts {
		if name, ok := set.LegacyNameMapping[text]; ok {
			text = name
		}
		if mapped, ok := set.Mapping[text]; ok {
			ids = append(ids, mapped...)
		} else if matches(text) {
			names = append(names, text)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), ids
}

// site decides which roles the user has in the deployment.
func (d *decision) site() {
	set := d.settings.Site
	if set.Field == "" {
		return
	}
	v := d.read(set.Field)
	want := slices.Clone(set.Default)
	for _, text := range v.all {
		mapped, ok := set.Mapping[text]
		if !ok && rbac.IsSiteRole(text) {
			mapped = []string{text}
		}
		want = append(want, mapped...)
	}
	if !v.whole {
		want = append(want, d.now.SiteRoles...)
	}
	want = sorted(slices.DeleteFunc(want, func(role string) bool { return !rbac.IsSiteRole(role) }))
	if !slices.Equal(want, sorted(slices.Clone(d.now.SiteRoles))) {
		d.plan.SiteRoles = append([]string{}, want...)
	}
}

// sorted returns the values in order, each once.
func sorted[T interface{ uuid.UUID | string }](all []T) []T {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(text(a), text(b)) })
	return slices.Compact(all)
}

func text[T interface{ uuid.UUID | string }](v T) string {
	if id, ok := any(v).(uuid.UUID); ok {
		return id.String()
	}
	return any(v).(string)
}

// without returns the values that are not in the other list.
func without[T comparable](all, other []T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return slices.Contains(other, v) })
}

// both returns the values that are in both lists.
func both[T comparable](all, other []T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !slices.Contains(other, v) })
}
