package coderd_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// standing is what an account is: its roles in the deployment, and in the organization east.
type standing struct{ site, east []string }

func (s standing) String() string { return strings.Join(slices.Concat(s.site, s.east), "+") }

// Custom roles of east: one changes members and groups, and one changes the organization.
const (
	customPeople = "people"
	customEditor = "editor"
)

var customPowers = map[string][]rbac.Power{
	customPeople: {
		{Action: rbac.Create, Resource: rbac.OrganizationMember}, {Action: rbac.Delete, Resource: rbac.OrganizationMember},
		{Action: rbac.Update, Resource: rbac.OrganizationMember}, {Action: rbac.Update, Resource: rbac.Group},
	},
	customEditor: {{Action: rbac.Update, Resource: rbac.Organization}, {Action: rbac.Create, Resource: rbac.OrganizationRole}, {Action: rbac.Update, Resource: rbac.OrganizationRole}},
}

func eastRoles() []string { return append(rbac.OrganizationRoles(), customPeople, customEditor) }

func everyStanding() []standing {
	out := []standing{{}}
	for _, role := range rbac.SiteRoles() {
		out = append(out, standing{site: []string{role}})
	}
	for _, role := range eastRoles() {
		out = append(out, standing{east: []string{role}})
	}
	return out
}

// powers returns what the documented table gives to the roles, as "action object place". It does not use the code under test.
func (s standing) powers() map[string]bool {
	out := map[string]bool{}
	for _, row := range rbac.Rows() {
		for _, relation := range row.Relations {
			if slices.Contains(s.site, relation) {
				out[fmt.Sprintf("%s %s everywhere", row.Action, row.Resource)] = true
				out[fmt.Sprintf("%s %s east", row.Action, row.Resource)] = true
			}
			if slices.Contains(s.east, relation) {
				out[fmt.Sprintf("%s %s east", row.Action, row.Resource)] = true
			}
		}
	}
	for _, role := range s.east {
		for _, p := range customPowers[role] {
			out[fmt.Sprintf("%s %s east", p.Action, p.Resource)] = true
		}
	}
	return out
}

// membership adds what all members of east may do.
func (s standing) membership() map[string]bool {
	out := s.powers()
	for _, row := range rbac.Rows() {
		if slices.Contains(row.Relations, rbac.RelationMember) {
			out[fmt.Sprintf("%s %s east", row.Action, row.Resource)] = true
		}
	}
	return out
}

// beyond returns a power of some that all lacks, or "".
func beyond(all, some map[string]bool) string {
	for p := range some {
		if !all[p] {
			return p
		}
	}
	return ""
}

// accountRoute is a request that changes an account or what accounts may do.
type accountRoute struct {
	bodies []string // with {target}, {role}, {n}: each is tried
	// acts means that the route acts on the account in the path, so that the actor needs all of its powers.
	acts bool
	// alone is why no pair of roles is tried.
	alone string
}

// accountRoutes has an entry for every route that changes accounts; see isAccountRoute.
var accountRoutes = map[string]accountRoute{
	"POST /api/v2/users/first":                                 {alone: "it makes the first account, and none after it"},
	"POST /api/v2/users/login":                                 {alone: "it needs the account's password"},
	"POST /api/v2/users/login/code":                            {alone: "it needs a code that the account's session made"},
	"POST /api/v2/users/login/device/token":                    {alone: "it needs a code that the account's session confirmed"},
	"POST /api/v2/users/logout":                                {alone: "it ends the caller's own session"},
	"DELETE /api/v2/users/{user}/template-consents/{template}": {alone: "only the user themselves, and it takes credentials from a template"},
	"POST /api/v2/users/otp/change-password":                   {alone: "it needs the code that was mailed"},
	"POST /api/v2/users": {bodies: []string{
		`{"username": "{n}", "email": "{n}@example.com", "login_type": "none", "roles": ["owner"]}`,
		`{"username": "{n}", "email": "{n}@example.com", "login_type": "none", "organization_ids": ["{east}"]}`}},
	"DELETE /api/v2/users/{user}":              {bodies: []string{""}, acts: true},
	"PUT /api/v2/users/{user}/status/suspend":  {bodies: []string{""}, acts: true},
	"PUT /api/v2/users/{user}/status/activate": {bodies: []string{""}, acts: true},
	"PUT /api/v2/users/{user}/roles": {bodies: []string{`{"roles": []}`, `{"roles": ["owner"]}`, `{"roles": ["user-admin"]}`, `{"roles": ["template-admin"]}`,
		`{"roles": ["auditor"]}`, `{"roles": ["auditor", "user-admin"]}`}, acts: true},
	"PUT /api/v2/users/{user}/profile":                   {bodies: []string{`{"username": "{n}", "name": "x"}`}, acts: true},
	"PUT /api/v2/users/{user}/password":                  {bodies: []string{`{"password": "correct horse {n}"}`}, acts: true},
	"PUT /api/v2/users/{user}/quiet-hours":               {bodies: []string{`{"schedule": "CRON_TZ=UTC 0 4 * * *"}`}, acts: true},
	"PUT /api/v2/users/{user}/appearance":                {bodies: []string{`{"theme_preference": "dark"}`}, acts: true},
	"PUT /api/v2/users/{user}/preferences":               {bodies: []string{`{"workspace_columns": ["status"]}`}, acts: true},
	"PUT /api/v2/users/{user}/notifications/preferences": {bodies: []string{`{"template_disabled_map": {"f517da0b-cdc9-410f-ab89-a86107c420ed": true}}`}, acts: true},
	"PUT /api/v2/users/{user}/gitsshkey":                 {bodies: []string{""}, acts: true},
	"POST /api/v2/users/{user}/convert-login":            {bodies: []string{`{"to_type": "github", "password": "x"}`}, acts: true},
	"POST /api/v2/users/{user}/keys/tokens":              {bodies: []string{`{}`}, acts: true},
	"POST /api/v2/users/{user}/keys":                     {bodies: []string{""}, acts: true},
	"POST /api/v2/users/{user}/keys/codes":               {alone: "it hands over the caller's own session"},
	"POST /api/v2/users/{user}/login-requests/{code}":    {alone: "it hands over the caller's own session"},
	"DELETE /api/v2/users/{user}/keys/{key}":             {bodies: []string{""}, acts: true},
	"PUT /api/v2/users/{user}/keys/{key}/expire":         {bodies: []string{""}, acts: true},
	"DELETE /api/v2/users/{user}/sessions":               {bodies: []string{""}, acts: true},
	"DELETE /api/v2/users/{user}/sessions/{key}":         {bodies: []string{""}, acts: true},
	"POST /api/v2/users/{user}/secrets":                  {bodies: []string{`{"name": "{n}", "value": "x", "env_name": "S{n}"}`}, acts: true},
	"POST /api/v2/users/{user}/secrets/batch":            {bodies: []string{`{"secrets": [{"name": "{n}", "value": "x", "env_name": "S{n}"}]}`}, acts: true},
	"PATCH /api/v2/users/{user}/secrets/{name}":          {bodies: []string{`{"description": "x"}`}, acts: true},
	"DELETE /api/v2/users/{user}/secrets/{name}":         {bodies: []string{""}, acts: true},
	"POST /api/v2/users/{user}/ssh-keys":                 {bodies: []string{`{"name": "{n}", "public_key": "{public}"}`}, acts: true},
	"PATCH /api/v2/users/{user}/ssh-keys/{key}":          {bodies: []string{`{"regions": []}`}, acts: true},
	"DELETE /api/v2/users/{user}/ssh-keys/{key}":         {bodies: []string{""}, acts: true},
	"POST /api/v2/users/{user}/devices":                  {bodies: []string{`{"name": "{n}", "public_key": "{wgkey}"}`}, acts: true},
	"PATCH /api/v2/users/{user}/devices/{device}":        {bodies: []string{`{"name": "{n}"}`}, acts: true},
	"DELETE /api/v2/users/{user}/devices/{device}":       {bodies: []string{""}, acts: true},

	"DELETE /api/v2/organizations/{organization}/invitations/{user}": {bodies: []string{""}},
	"POST /api/v2/users/{user}/invitations/{organization}/accept":    {bodies: []string{""}, acts: true},
	"POST /api/v2/users/{user}/invitations/{organization}/decline":   {bodies: []string{""}, acts: true},
	"POST /api/v2/organizations/{organization}/members/{user}":       {bodies: []string{""}},
	"DELETE /api/v2/organizations/{organization}/members/{user}":     {bodies: []string{""}},
	"PUT /api/v2/organizations/{organization}/members/{user}/roles": {bodies: []string{`{"roles": []}`, `{"roles": ["organization-admin"]}`, `{"roles": ["organization-user-admin"]}`,
		`{"roles": ["organization-template-admin"]}`, `{"roles": ["organization-auditor", "people"]}`, `{"roles": ["editor"]}`}},
	"POST /api/v2/organizations/{organization}/members/roles": {bodies: []string{`{"name": "{n}", "organization_permissions": [{"resource_type": "template", "action": "*"}]}`}},
	"PUT /api/v2/organizations/{organization}/members/roles": {bodies: []string{`{"name": "people", "organization_permissions": [{"resource_type": "template", "action": "*"}]}`,
		`{"name": "editor", "organization_permissions": []}`}},
	"PATCH /api/v2/organizations/{organization}/members/roles":         {bodies: []string{`{"name": "editor", "organization_permissions": [{"resource_type": "audit_log", "action": "read"}]}`}},
	"DELETE /api/v2/organizations/{organization}/members/roles/{name}": {bodies: []string{""}},
	"POST /api/v2/organizations/{organization}/groups":                 {bodies: []string{`{"name": "{n}"}`}},
	"PATCH /api/v2/groups/{group}":                                     {bodies: []string{`{"add_users": ["{id}"]}`}},
	"DELETE /api/v2/groups/{group}":                                    {alone: "it takes away what the group's members could do by sharing alone"},

	"PATCH /api/v2/organizations/{organization}/settings/idpsync/roles": {bodies: []string{`{"field": "r", "mapping": {"x": ["organization-admin"]}}`,
		`{"field": "r", "mapping": {"x": ["organization-auditor"]}}`, `{"field": "r", "mapping": {"x": ["people"]}}`, `{"field": "other", "mapping": {"standing": ["organization-admin"]}}`}},
	"PATCH /api/v2/organizations/{organization}/settings/idpsync/roles/config": {bodies: []string{`{"field": "other"}`}},
	"PATCH /api/v2/organizations/{organization}/settings/idpsync/roles/mapping": {bodies: []string{`{"add": [{"given": "y", "gets": "organization-template-admin"}]}`,
		`{"remove": [{"given": "standing", "gets": "organization-admin"}]}`}},
	"PATCH /api/v2/organizations/{organization}/settings/idpsync/groups":         {bodies: []string{`{"field": "g", "mapping": {"x": ["{group}"]}}`}},
	"PATCH /api/v2/organizations/{organization}/settings/idpsync/groups/config":  {bodies: []string{`{"field": "other"}`}},
	"PATCH /api/v2/organizations/{organization}/settings/idpsync/groups/mapping": {bodies: []string{`{"add": [{"given": "y", "gets": "{group}"}]}`}},
	"PATCH /api/v2/settings/idpsync/organization":                                {alone: "it needs to update the deployment, as owners do: TestEveryCell"},
	"PATCH /api/v2/settings/idpsync/organization/config":                         {alone: "it needs to update the deployment, as owners do: TestEveryCell"},
	"PATCH /api/v2/settings/idpsync/organization/mapping":                        {alone: "it needs to update the deployment, as owners do: TestEveryCell"},

	"POST /api/v2/users/{user}/webpush/subscription":                      {alone: "it does not exist here"},
	"DELETE /api/v2/users/{user}/webpush/subscription":                    {alone: "it does not exist here"},
	"POST /api/v2/users/{user}/webpush/test":                              {alone: "it does not exist here"},
	"POST /api/v2/tasks/{user}":                                           {alone: "it does not exist here"},
	"DELETE /api/v2/tasks/{user}/{task}":                                  {alone: "it does not exist here"},
	"POST /api/v2/users/{user}/workspaces":                                {alone: "a workspace changes no account: TestEveryCell"},
	"POST /api/v2/organizations/{organization}/members/{user}/workspaces": {alone: "a workspace changes no account: TestEveryCell"},
	"POST /scim/v2/Users":                                                 {alone: "the identity provider's token, which the operator sets, is not a user"},
	"PUT /scim/v2/Users/{id}":                                             {alone: "the identity provider's token, which the operator sets, is not a user"},
	"PATCH /scim/v2/Users/{id}":                                           {alone: "the identity provider's token, which the operator sets, is not a user"},
	"DELETE /scim/v2/Users/{id}":                                          {alone: "the identity provider's token, which the operator sets, is not a user"},
	"POST /scim/v2/Groups":                                                {alone: "the identity provider's token, which the operator sets, is not a user"},
	"PUT /scim/v2/Groups/{id}":                                            {alone: "the identity provider's token, which the operator sets, is not a user"},
	"PATCH /scim/v2/Groups/{id}":                                          {alone: "the identity provider's token, which the operator sets, is not a user"},
	"DELETE /scim/v2/Groups/{id}":                                         {alone: "the identity provider's token, which the operator sets, is not a user"},
}

// isAccountRoute reports whether a route may change an account, or what accounts may do.
func isAccountRoute(pattern, kind string) bool {
	kinds := []audit.Kind{audit.User, audit.APIKey, audit.GitSSHKey, audit.UserSecret, audit.UserSSHKey, audit.UserDevice, audit.OrganizationMember, audit.CustomRole, audit.Group, audit.GroupSync, audit.RoleSync, audit.OrganizationSync}
	return strings.Contains(pattern, "{user}") || slices.Contains(kinds, audit.Kind(kind))
}

// court is a server with the organization east, its custom roles, a group that administers a template, and the accounts of an actor and
// a target, whose roles change.
type court struct {
	*cells
	group         string
	actor, target string
	by, of        *standing // what the accounts are; nil if a request may have changed them
}

func newCourt(t *testing.T) *court {
	c := &court{cells: &cells{Server: coderdtest.New(t, coderdtest.GitHub, coderdtest.WireGuard), actors: everyActor(), east: uuid.New()}}
	c.Exec(`INSERT INTO organizations (id, name) VALUES ($1, 'east')`, c.east)
	c.group = uuid.NewString()
	c.Exec(`INSERT INTO groups (id, organization_id, name) VALUES ($1, $2, 'publishers')`, c.group, c.east)
	c.join(c.east, c.owner())
	c.template(c.east, rbac.Sharing{uuid.MustParse(c.group): rbac.LevelAdmin}, c.file())
	return c
}

// account creates an account with a standing, a member of east, with a session.
func (c *court) account(s standing) string {
	name := "p" + c.next()
	c.Exec(`UPDATE users SET roles = $2 WHERE id = $1`, c.User(name), append([]string{}, s.site...))
	c.join(c.east, name, s.east...)
	return name
}

// stage gives the accounts their roles, and restores what an accepted request has changed.
func (c *court) stage(by, of standing) {
	if c.by == nil || c.of == nil {
		c.Exec(`DELETE FROM organization_roles WHERE organization_id = $1`, c.east)
		for role, powers := range customPowers {
			c.Exec(`INSERT INTO organization_roles (organization_id, name, powers) VALUES ($1, $2, $3)`, c.east, role, powers)
		}
		c.Exec(`DELETE FROM idp_sync WHERE organization_id = $1`, c.east)
		c.Exec(`INSERT INTO idp_sync (kind, organization_id, settings) VALUES ('role', $1, '{"field": "r", "mapping": {"standing": ["organization-admin"]}}')`, c.east)
		c.actor, c.target = c.account(by), c.account(of)
	} else {
		for name, s := range map[string]standing{c.actor: by, c.target: of} {
			c.Exec(`UPDATE users SET roles = $2 WHERE id = $1`, c.User(name), append([]string{}, s.site...))
			c.Exec(`UPDATE organization_members SET roles = $3 WHERE organization_id = $1 AND user_id = $2`, c.east, c.User(name), append([]string{}, s.east...))
		}
	}
	c.by, c.of = &by, &of
}

// standings returns what an account may do now, unless it was deleted, and whether it belongs to the group that administers a template.
func (c *court) standings(name string) (holds map[string]bool, publishes bool) {
	actor, err := c.DB.GetActor(c.T.Context(), c.User(name))
	if database.IsNotFound(err) {
		return nil, false
	}
	if err != nil {
		c.T.Fatal(err)
	}
	s := standing{site: actor.Roles}
	for _, m := range actor.Memberships {
		if m.Organization == c.east {
			s.east = m.Roles
		}
	}
	return c.give(s), slices.Contains(actor.Groups, uuid.MustParse(c.group))
}

// give returns what roles give now: requests may have changed the custom ones.
func (c *court) give(s standing) map[string]bool {
	out := standing{s.site, slices.DeleteFunc(slices.Clone(s.east), func(r string) bool { return !rbac.IsOrganizationRole(r) })}.powers()
	rows, err := c.DB.ListOrganizationRoles(c.T.Context(), c.east)
	if err != nil {
		c.T.Fatal(err)
	}
	for _, row := range rows {
		if slices.Contains(s.east, row.Name) {
			for _, p := range row.Powers {
				out[fmt.Sprintf("%s %s east", p.Action, p.Resource)] = true
			}
		}
	}
	return out
}

// claims returns what identity provider sync gives to those of whom the provider says something, as "claim=value".
func (c *court) claims() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	settings, err := c.DB.ListSyncSettings(c.T.Context(), []uuid.UUID{c.east})
	if err != nil {
		c.T.Fatal(err)
	}
	for _, row := range settings {
		var set sdk.RoleSyncSettings
		if row.Kind != "role" {
			continue
		}
		if err := json.Unmarshal(row.Settings, &set); err != nil {
			c.T.Fatal(err)
		}
		for value, roles := range set.Mapping {
			out[set.Field+"="+value] = c.give(standing{east: roles})
		}
	}
	return out
}

// attempt sends a request as an actor about a target, and reports whether it was accepted. It fails if an accepted request gave or took
// a power that the actor lacked, or acted on an account with such a power.
func (c *court) attempt(t interface{ Errorf(string, ...any) }, pattern, body string, by, of standing) bool {
	if c.by == nil || c.of == nil || c.by.String() != by.String() || c.of.String() != of.String() {
		c.stage(by, of)
	}
	outside := strings.HasPrefix(pattern, "POST") && strings.HasSuffix(pattern, "/members/{user}")
	if outside {
		c.Exec(`DELETE FROM organization_members WHERE organization_id = $1 AND user_id = $2`, c.east, c.User(c.target))
		of.east, c.by = nil, nil
	}
	key := "none"
	switch {
	case strings.Contains(pattern, "/ssh-keys/{key}"):
		key = c.sshKeyOf(c.target)
	case strings.Contains(pattern, "{key}"):
		key = c.sessionOf(c.target)
	}
	device := "none"
	if strings.Contains(pattern, "/devices") {
		device = c.deviceOf(c.target)
	}
	method, path, _ := strings.Cut(pattern, " ")
	fill := vars{"user": c.target, "target": c.target, "id": c.User(c.target).String(), "organization": "east", "east": c.east.String(), "group": c.group, "key": key, "public": publicKey(c.T),
		"device": device, "wgkey": wireGuardKey(c.T),
		"n": "q" + c.next(), "name": customPeople}.fill
	status, answer := c.send(c.actor, method, fill(path), fill(body))
	what := fmt.Sprintf("%q on %q: %s %s: %d %.120s", by, of, pattern, body, status, strings.TrimSpace(answer))
	if status >= 500 {
		t.Errorf("%s", what)
	}
	if status >= 300 {
		return false
	}
	own := by.membership()
	change := func(before, after map[string]bool, whose string) {
		if p := beyond(union(own, before), after); p != "" {
			t.Errorf("%s: gave %s to %s", what, p, whose)
		}
		if p := beyond(union(own, after), before); p != "" {
			t.Errorf("%s: took %s from %s", what, p, whose)
		}
	}
	if p := beyond(own, of.powers()); accountRoutes[pattern].acts && p != "" {
		t.Errorf("%s: the account may %s, which the actor may not", what, p)
	}
	for name, s := range map[string]standing{c.actor: by, c.target: of} {
		holds, publishes := c.standings(name)
		if holds != nil {
			change(s.powers(), holds, name)
		}
		if publishes && !own["update template east"] {
			t.Errorf("%s: gave the administration of a template", what)
		}
	}
	before := map[string]map[string]bool{"r=standing": standing{east: []string{rbac.RoleOrganizationAdmin}}.powers()}
	after := c.claims()
	for claim := range union(keys(before), keys(after)) {
		change(before[claim], after[claim], "whoever has "+claim)
	}
	c.by = nil // stage anew
	return true
}

func union(a, b map[string]bool) map[string]bool {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func keys[V any](m map[string]V) map[string]bool {
	out := map[string]bool{}
	for key := range m {
		out[key] = true
	}
	return out
}

// sessionOf returns the id of a new session of a user.
func (c *court) sessionOf(user string) string {
	id, _, _ := strings.Cut(c.Session(user).Reveal(), "-")
	return id
}

// TestPowersCannotGrow sends every request that changes accounts, for all pairs of roles and then for random combinations: no account gives or
// takes a power that they lack, or acts on an account that has one. A new route must be listed in accountRoutes.
func TestPowersCannotGrow(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	known := map[string]bool{}
	var patterns []string
	for _, route := range c.Mux.Routes() {
		if !route.Mutates() || !isAccountRoute(route.Pattern, route.Audit.Kind) {
			continue
		}
		known[route.Pattern] = true
		r, ok := accountRoutes[route.Pattern]
		if !ok || (r.alone == "") == (len(r.bodies) == 0) {
			t.Errorf("%s changes %s: list it in accountRoutes with requests, or the reason why there are none", route.Pattern, route.Audit.Kind)
		}
		if r.alone == "" {
			patterns = append(patterns, route.Pattern)
		}
	}
	for pattern := range accountRoutes {
		if !known[pattern] {
			t.Errorf("accountRoutes lists %s, which does not exist or changes no account", pattern)
		}
	}
	t.Run("pairs", func(t *testing.T) { c.pairs(t, patterns) })
	t.Run("combinations", func(t *testing.T) { c.combinations(t, patterns) })
}

// pairs tries all pairs of roles. Every request must be accepted from at least one actor, except those that only the account's own user can make.
func (c *court) pairs(t *testing.T, patterns []string) {
	accepted := map[string]int{}
	for _, by := range everyStanding() {
		for _, of := range everyStanding() {
			for _, pattern := range patterns {
				for _, body := range accountRoutes[pattern].bodies {
					if c.attempt(t, pattern, body, by, of) {
						accepted[pattern]++
					}
				}
			}
		}
	}
	for _, pattern := range patterns {
		if (accepted[pattern] > 0) == personal(pattern) {
			t.Errorf("%s was accepted %d times", pattern, accepted[pattern])
		}
	}
}

// personal reports whether only an account's own user can make a request.
func personal(pattern string) bool {
	return strings.Contains(pattern, "/secrets") || strings.HasSuffix(pattern, "/convert-login") ||
		strings.Contains(pattern, "/invitations/") || strings.HasPrefix(pattern, "POST /api/v2/users/{user}/keys") ||
		pattern == "POST /api/v2/users/{user}/ssh-keys" || pattern == "POST /api/v2/users/{user}/devices" ||
		pattern == "PATCH /api/v2/users/{user}/devices/{device}" || pattern == "PATCH /api/v2/users/{user}/ssh-keys/{key}"
}

// combinations tries some of all combinations of roles.
func (c *court) combinations(t *testing.T, patterns []string) {
	combination := rapid.Custom(func(t *rapid.T) standing {
		return standing{
			site: rapid.SliceOfNDistinct(rapid.SampledFrom(rbac.SiteRoles()), 0, 2, rapid.ID).Draw(t, "site"),
			east: rapid.SliceOfNDistinct(rapid.SampledFrom(eastRoles()), 0, 3, rapid.ID).Draw(t, "east"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.SampledFrom(patterns).Draw(t, "route")
		body := rapid.SampledFrom(accountRoutes[pattern].bodies).Draw(t, "body")
		c.attempt(t, pattern, body, combination.Draw(t, "by"), combination.Draw(t, "of"))
	})
}

// TestUserAdminsStayBelow is an attacker's attempt: the administrator of accounts makes one of its own accounts an administrator of
// templates, and takes over those of others.
func TestUserAdminsStayBelow(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	attacker, sock := c.account(standing{site: []string{rbac.RoleUserAdmin}}), c.account(standing{})
	const refusal = "powers that you do not have"
	for _, role := range []string{rbac.RoleOwner, rbac.RoleTemplateAdmin, rbac.RoleAuditor} {
		victim := c.account(standing{site: []string{role}})
		for _, request := range []struct{ method, path, body string }{
			{"PUT", "users/" + sock + "/roles", `{"roles": ["` + role + `"]}`},
			{"PUT", "users/me/roles", `{"roles": ["` + role + `"]}`},
			{"PUT", "users/" + victim + "/roles", `{"roles": []}`},
			{"PUT", "users/" + victim + "/password", `{"password": "Passw0rd-sock!"}`},
			{"PUT", "users/" + victim + "/status/suspend", ""},
			{"DELETE", "users/" + victim, ""},
			{"PUT", "users/" + victim + "/profile", `{"username": "` + sock + `x"}`},
		} {
			if status, body := c.send(attacker, request.method, v2+request.path, request.body); status != 403 || !strings.Contains(body, refusal) {
				t.Errorf("%s: %s %s %s: %d %s", role, request.method, request.path, request.body, status, body)
			}
		}
		// It is the role that is refused, and an owner changes it.
		if status, body := c.send("olga", "PUT", v2+"users/"+victim+"/roles", `{"roles": []}`); status != 200 {
			t.Errorf("an owner: %d %s", status, body)
		}
		if status, body := c.send(attacker, "PUT", v2+"users/"+victim+"/password", `{"password": "Passw0rd-sock!"}`); status != 204 {
			t.Errorf("a member's password: %d %s", status, body)
		}
	}
	if status, body := c.send(attacker, "PUT", v2+"users/"+sock+"/roles", `{"roles": ["user-admin"]}`); status != 200 {
		t.Errorf("a role of the same powers: %d %s", status, body)
	}
	// What the page offers is what the server accepts.
	_, text := c.send(attacker, "GET", v2+"users/roles", "")
	var roles []sdk.AssignableRole
	if err := json.Unmarshal([]byte(text), &roles); err != nil {
		t.Fatal(err)
	}
	for _, role := range roles {
		if role.Assignable != (role.Name == rbac.RoleUserAdmin) {
			t.Errorf("%s: assignable is %t", role.Name, role.Assignable)
		}
	}
}
