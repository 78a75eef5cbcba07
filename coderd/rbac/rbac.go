// Package rbac owns the one permission table: which role may do what to whose objects. It knows neither HTTP nor the
// database; an Actor and an Object are all it sees.
//
// There are three roles. Every signed-in user is a member. Template admins also manage templates and provisioners. Owners may
// do everything. An object has an owner or belongs to the deployment.
package rbac

import (
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/internal/fault"
)

// Action is what an actor wants to do.
type Action string

const (
	Create  Action = "create"
	Read    Action = "read"
	Update  Action = "update"
	Delete  Action = "delete"
	Manage  Action = "manage"  // administer an account: its status and roles
	Connect Action = "connect" // reach into: a shell, ports, apps
)

// Resource is a kind of object.
type Resource string

const (
	Agent              Resource = "agent"
	APIKey             Resource = "API key"
	Deployment         Resource = "deployment"
	ExternalAuth       Resource = "login elsewhere" // a user's account at a git host, and the like
	File               Resource = "template file"
	Mesh               Resource = "mesh"
	Organization       Resource = "organization"
	OrganizationMember Resource = "organization member" // name and id only
	ProvisionerDaemon  Resource = "provisioner"
	ProvisionerJob     Resource = "provisioner job"
	ProvisionerKey     Resource = "provisioner key"
	SSHKey             Resource = "SSH key"
	Template           Resource = "template"
	TemplateVersion    Resource = "template version"
	User               Resource = "user"
	Workspace          Resource = "workspace"
	WorkspaceBuild     Resource = "workspace build"
	WorkspaceState     Resource = "workspace state" // Terraform's: holds credentials
)

// The stored roles. Every user is also a member.
const (
	RoleOwner         = "owner"
	RoleTemplateAdmin = "template-admin"
)

// Object is the target of an action.
type Object struct {
	Resource Resource
	Owner    uuid.UUID // zero if it belongs to the deployment
}

// Of returns the object of kind r that owner owns; uuid.Nil means that it belongs to the deployment.
func Of(r Resource, owner uuid.UUID) Object { return Object{Resource: r, Owner: owner} }

// Actor is the user who acts. The zero value is not signed in, and may do nothing.
type Actor struct {
	UserID   uuid.UUID
	Username string
	Roles    []string // stored roles, without member
	KeyID    string   // public half of the token that was sent

	// FromWorkspace reports that the token was issued to a workspace. The workspace's template can read it, so it never
	// carries an owner's powers over others, and cannot create or change credentials.
	FromWorkspace bool
}

// SignedIn reports whether the actor is a user.
func (a Actor) SignedIn() bool { return a.UserID != uuid.Nil }

// May returns nil if the actor may do the action to the object. Otherwise it returns a fault: Unauthenticated for the zero
// Actor, NotFound if the actor must not know that the object exists, and Forbidden if the object is visible and only this
// action is refused.
func (a Actor) May(action Action, object Object) error {
	if !a.SignedIn() {
		return fault.New(fault.Unauthenticated, "You are not signed in.")
	}
	own := object.Owner == a.UserID
	if a.allowed(action, object.Resource, own) {
		return nil
	}
	if !a.allowed(Read, object.Resource, own) {
		return NotFound(object.Resource)
	}
	return forbidden(action, object.Resource)
}

// Sees reports whether the actor may read every object of the kind, regardless of owner. It decides the extent of a list.
func (a Actor) Sees(resource Resource) bool {
	return a.SignedIn() && a.allowed(Read, resource, false)
}

// NotFound returns the answer about an object that does not exist, or that the actor may not see: the two must not differ.
func NotFound(resource Resource) error {
	return fault.New(fault.NotFound, "This %s does not exist, or you do not have access to it.", resource)
}

func forbidden(action Action, resource Resource) error {
	f := fault.New(fault.Forbidden, "You do not have permission to %s this %s.", action, resource)
	g, ok := table[resource][action]
	switch {
	case !ok:
		return f
	case g.templateAdmin == all:
		return f.WithDetail("This needs the role %s. Ask an owner of the deployment.", RoleTemplateAdmin)
	case g.member == own:
		return f.WithDetail("Only its owner, or an owner of the deployment, can do this.")
	}
	return f.WithDetail("This needs the role %s.", RoleOwner)
}

func (a Actor) allowed(action Action, resource Resource, own bool) bool {
	g, ok := table[resource][action]
	if !ok {
		return false
	}
	owner, templateAdmin := slices.Contains(a.Roles, RoleOwner), slices.Contains(a.Roles, RoleTemplateAdmin)
	if a.FromWorkspace {
		if g.personal {
			return false
		}
		owner, templateAdmin = false, owner || templateAdmin
	}
	switch {
	case owner:
		return true
	case templateAdmin && g.templateAdmin.covers(own):
		return true
	default:
		return g.member.covers(own)
	}
}
