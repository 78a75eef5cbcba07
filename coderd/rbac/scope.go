package rbac

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Scope is what a token may do of all that its user may do. The zero value takes nothing away. A limited scope allows
// an action only if one of its scopes names it, and only to objects on its allow-list. It always allows reading the
// user's own account and the names of organizations, so that a program can tell whose token it has.
//
// A scope is a type of object and an action, such as "workspace:read", or one of the bundles. An entry of an allow-list
// is a type and an id. A workspace's builds, agents and apps count as the workspace, and a template's versions as the
// template.
type Scope struct {
	limited bool
	names   []string // as they were granted, sorted
	atoms   []string // what they mean: "type:action", "type:*"
	targets []target // empty: all objects
}

// target is an entry of an allow-list.
type target struct {
	kind string    // "*": any
	id   uuid.UUID // zero: any
}

const (
	scopeAll = "all"
	anything = "*"
)

// kinds names the types of objects in scopes, where they are not the resource's name with underscores.
var kinds = map[Resource]string{
	Agent: "workspace", WorkspaceBuild: "workspace", TemplateVersion: "template", APIKey: "api_key",
	SSHKey:       "git_ssh_key",
	ExternalAuth: "external_auth", UserSecret: "user_secret", UserSSHKey: "user_ssh_key", UserDevice: "user_device",
	ProvisionerDaemon: "provisioner_daemon", ProvisionerJob: "provisioner_jobs",
	File: "file", Mesh: "workspace", Notification: "inbox_notification",
}

func kindOf(resource Resource) string {
	if kind, ok := kinds[resource]; ok {
		return kind
	}
	return strings.ReplaceAll(strings.ToLower(string(resource)), " ", "_")
}

// needed lists the scopes of which any one allows an action, where that is not the one with the action's own name.
var needed = map[Power][]string{
	{Connect, Workspace}:      {"workspace:ssh"},
	{Connect, Agent}:          {"workspace:ssh"},
	{Update, Agent}:           {"workspace:ssh"},
	{Connect, Mesh}:           {"workspace:ssh"},
	{OpenApp, Workspace}:      {"workspace:application_connect"},
	{Withdraw, Workspace}:     {"workspace:share"},
	{Read, Mesh}:              {"deployment:read"},
	{Create, WorkspaceBuild}:  {"workspace:start", "workspace:stop", "workspace:delete", "workspace:update"}, // see MayTransition
	{Update, WorkspaceBuild}:  {"workspace:start", "workspace:stop", "workspace:delete", "workspace:update"}, // cancel
	{Create, TemplateVersion}: {"template:create", "template:update"},
	{Update, TemplateVersion}: {"template:update"},
	{Delete, TemplateVersion}: {"template:update"},
}

func neededFor(action Action, resource Resource) []string {
	if names, ok := needed[Power{action, resource}]; ok {
		return names
	}
	return []string{kindOf(resource) + ":" + string(action)}
}

// bundles are scopes that stand for several.
var bundles = map[string][]string{
	"application_connect":       {"workspace:application_connect"},
	"coder:application_connect": {"workspace:application_connect"},
	"coder:workspaces.create":   {"template:read", "template:use", "workspace:create", "workspace:read", "workspace:start"},
	"coder:workspaces.operate":  {"template:read", "workspace:read", "workspace:start", "workspace:stop", "workspace:update"},
	"coder:workspaces.delete":   {"workspace:read", "workspace:delete"},
	"coder:workspaces.access":   {"workspace:read", "workspace:ssh", "workspace:application_connect"},
	"coder:templates.build":     {"template:read", "template:update", "file:create", "file:read", "provisioner_jobs:read"},
	"coder:templates.author":    {"template:*", "file:create", "file:read", "provisioner_jobs:read"},
	"coder:apikeys.manage_self": {"api_key:*"},
}

// atoms returns every scope of one type and one action, sorted.
func atoms() []string {
	all := map[string]bool{}
	for resource, actions := range table {
		for action := range actions {
			for _, name := range neededFor(action, resource) {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Scopes returns the scopes that a token can have, sorted: bundles, single actions, and all actions of a type.
func Scopes() []string {
	all := map[string]bool{scopeAll: true, "coder:all": true}
	for name := range bundles {
		all[name] = true
	}
	for _, name := range atoms() {
		kind, _, _ := strings.Cut(name, ":")
		all[name], all[kind+":*"] = true, true
	}
	return slices.Sorted(maps.Keys(all))
}

// unknownScope describes a scope that does not exist, and names those that may be meant.
func unknownScope(name string, known []string) string {
	kind, _, _ := strings.Cut(name, ":")
	if near := slices.DeleteFunc(slices.Clone(known), func(s string) bool { return !strings.HasPrefix(s, kind+":") }); len(near) > 0 {
		return fmt.Sprintf("%q does not exist. The scopes of %s are %s", name, kind, strings.Join(near, ", "))
	}
	var whole []string
	for _, s := range known {
		if of, is := strings.CutSuffix(s, ":"+anything); is {
			whole = append(whole, of)
		}
	}
	return fmt.Sprintf("%q does not exist. A scope is a type and an action, such as workspace:read. The types are %s",
		name, strings.Join(whole, ", "))
}

// NewScope returns the scope that scopes and an allow-list describe. Empty lists, and "all" with "*:*", mean the zero
// Scope. Its fault, Invalid, names each bad entry as a field, "scopes" or "allow_list".
func NewScope(scopes, allow []string) (Scope, error) {
	f := fault.New(fault.Invalid, "The token's scope is not valid.")
	s := Scope{limited: len(scopes) > 0}
	known := Scopes()
	for _, name := range scopes {
		switch {
		case name == scopeAll || name == "coder:all":
			s.atoms = append(s.atoms, anything)
		case !slices.Contains(known, name):
			f.Fields = append(f.Fields, fault.Field{Field: "scopes", Detail: unknownScope(name, known)})
		case bundles[name] != nil:
			s.atoms = append(s.atoms, bundles[name]...)
		default:
			s.atoms = append(s.atoms, name)
		}
	}
	everything := len(allow) == 0
	for _, entry := range allow {
		t, problem := parseTarget(entry)
		if problem != "" {
			f.Fields = append(f.Fields, fault.Field{Field: "allow_list", Detail: fmt.Sprintf("%q %s", entry, problem)})
			continue
		}
		everything = everything || t == target{kind: anything}
		s.targets = append(s.targets, t)
	}
	if len(f.Fields) > 0 {
		return Scope{limited: true}, f
	}
	if everything {
		s.targets = nil
	}
	if len(scopes) == 0 || slices.Contains(s.atoms, anything) {
		if everything {
			return Scope{}, nil
		}
		s.atoms = []string{anything}
	}
	s.limited, s.names = true, slices.Compact(slices.Sorted(slices.Values(scopes)))
	return s, nil
}

// targetKinds are the types of which an allow-list can name single objects.
var targetKinds = []string{"template", "workspace"}

// parseTarget parses an entry of an allow-list, or returns what is wrong with it.
func parseTarget(entry string) (t target, problem string) {
	if entry == anything {
		return target{kind: anything}, ""
	}
	kind, id, ok := strings.Cut(entry, ":")
	isKind := kind == anything ||
		slices.ContainsFunc(atoms(), func(name string) bool { return strings.HasPrefix(name, kind+":") })
	switch {
	case !ok || !isKind || id == "":
		return t, "must be *:*, workspace:<id>, template:<id>, or a type and :*"
	case id == anything:
		return target{kind: kind}, ""
	}
	parsed, err := uuid.Parse(id)
	if err != nil || len(id) != 36 || parsed == uuid.Nil {
		return t, "must have an id of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, or *"
	}
	if !slices.Contains(targetKinds, kind) {
		return t, "cannot have an id: only a workspace or a template can"
	}
	return target{kind, parsed}, ""
}

// Limited reports whether the scope takes anything away.
func (s Scope) Limited() bool { return s.limited }

// Equal reports whether two scopes allow the same.
func (s Scope) Equal(o Scope) bool {
	return s.limited == o.limited && slices.Equal(s.atoms, o.atoms) && slices.Equal(s.targets, o.targets)
}

// String names the scopes.
func (s Scope) String() string {
	if !s.limited || len(s.names) == 0 {
		return scopeAll
	}
	return strings.Join(s.names, ", ")
}

// permits reports whether the scope has a single scope, such as "workspace:start".
func (s Scope) permits(name string) bool {
	kind, _, _ := strings.Cut(name, ":")
	return !s.limited || slices.ContainsFunc(s.atoms,
		func(atom string) bool { return atom == anything || atom == name || atom == kind+":*" })
}

// somewhere reports whether the scope allows an action to some object of a kind.
func (s Scope) somewhere(action Action, resource Resource) bool {
	if !s.limited || findsOwner(action, resource) {
		return true
	}
	return slices.ContainsFunc(neededFor(action, resource), s.permits) &&
		(len(s.targets) == 0 || slices.ContainsFunc(s.targets,
			func(t target) bool { return t.kind == anything || t.kind == kindOf(resource) }))
}

// covers reports whether the scope allows user an action to an object. An object whose id is not known is on no list of
// ids.
func (s Scope) covers(user uuid.UUID, action Action, object Object) bool {
	switch {
	case !s.limited, findsOwner(action, object.Resource) && (object.Resource != User || object.Owner == user):
		return true
	case !slices.ContainsFunc(neededFor(action, object.Resource), s.permits):
		return false
	}
	return s.lists(object)
}

// lists reports whether an object is on the allow-list.
func (s Scope) lists(object Object) bool {
	return len(s.targets) == 0 || slices.ContainsFunc(s.targets, func(t target) bool {
		return (t.kind == anything || t.kind == kindOf(object.Resource)) && (t.id == uuid.Nil || t.id == object.ID)
	})
}

// ids returns the only objects of a kind that the allow-list has; limited is false if it has all of them.
func (s Scope) ids(resource Resource) (ids []uuid.UUID, limited bool) {
	ids = []uuid.UUID{}
	if len(s.targets) == 0 {
		return ids, false
	}
	for _, t := range s.targets {
		if t.kind != anything && t.kind != kindOf(resource) {
			continue
		}
		if t.id == uuid.Nil {
			return []uuid.UUID{}, false
		}
		ids = append(ids, t.id)
	}
	return ids, true
}

// findsOwner reports whether an action is part of finding out whose token it is. Reading users is restricted to the own
// account.
func findsOwner(action Action, resource Resource) bool {
	return action == Read && (resource == User || resource == Organization)
}

// Within reports whether the scope allows nothing that outer does not allow.
func (s Scope) Within(outer Scope) bool {
	if !outer.limited {
		return true
	}
	if !s.limited {
		return false
	}
	for _, atom := range s.atoms {
		if !outer.permits(atom) {
			return false
		}
	}
	if len(outer.targets) == 0 {
		return true
	}
	return len(s.targets) > 0 && !slices.ContainsFunc(s.targets, func(t target) bool {
		return !slices.ContainsFunc(outer.targets, func(o target) bool {
			return (o.kind == anything || o.kind == t.kind) && (o.id == uuid.Nil || o.id == t.id)
		})
	})
}

// outOfScope returns the fault for an action that the user may do and the token may not.
func (s Scope) outOfScope(action Action, resource Resource) error {
	return fault.New(fault.Forbidden, "This token may not %s.", phrase(action, resource)).
		WithDetail("It needs the scope %s, and has %s.", strings.Join(neededFor(action, resource), " or "), s)
}
