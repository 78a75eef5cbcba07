// Package rbac owns the one permission table: who may do what to which object. It knows neither HTTP nor the database;
// an Actor and an Object are all it sees.
//
// What an actor may do follows from their relations to the object: roles in the deployment, roles in the object's
// organization, ownership, and sharing. A table lists, for each action on each kind of object, the relations that
// suffice. Custom roles add actions on all objects of a kind in their organization. Deployment owners may do everything
// that the table lists.
package rbac

import (
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Action is what an actor wants to do.
type Action string

const (
	Create  Action = "create"
	Read    Action = "read"
	Use     Action = "use" // create workspaces from a template
	Update  Action = "update"
	Delete  Action = "delete"
	Manage  Action = "manage"  // administer an account: its status and roles
	Connect Action = "connect" // reach into: a shell, ports, apps
	OpenApp Action = "application_connect"
	Share   Action = "share" // decide with whom the object is shared
	// Withdraw is to see with whom a workspace is shared, and to end or lower it.
	Withdraw Action = "withdraw"
	Transfer Action = "transfer" // give a workspace to another user
)

// phrase says an action on an object in words.
func phrase(action Action, resource Resource) string {
	verb := string(action)
	switch action {
	case Connect:
		verb = "connect to"
	case OpenApp:
		verb = "open apps of"
	case Withdraw:
		verb = "withdraw the sharing of"
	}
	return verb + " this " + string(resource)
}

// Resource is a kind of object.
type Resource string

const (
	Agent                  Resource = "agent"
	APIKey                 Resource = "API key"
	AuditLog               Resource = "audit log"
	ConnectionLog          Resource = "connection log"
	Deployment             Resource = "deployment"
	ExternalAuth           Resource = "login elsewhere" // a user's account at a git host, and the like
	File                   Resource = "template file"
	Group                  Resource = "group"
	Mesh                   Resource = "mesh"
	Notification           Resource = "notification" // in a user's inbox
	Organization           Resource = "organization"
	OrganizationInvitation Resource = "organization invitation" // to become a member
	OrganizationMember     Resource = "organization member"     // name, id and roles in the organization
	OrganizationRole       Resource = "organization role"       // a custom role
	ProvisionerDaemon      Resource = "provisioner"
	ProvisionerJob         Resource = "provisioner job"
	ProvisionerKey         Resource = "provisioner key"
	SSHKey                 Resource = "SSH key"
	Template               Resource = "template"
	TemplateConsent        Resource = "template consent" // of a user, to give a template's workspaces their credentials
	TemplateVersion        Resource = "template version"
	User                   Resource = "user"
	UserDevice             Resource = "device"         // of a user, with a WireGuard app
	UserSecret             Resource = "secret"         // of a user, for their workspaces
	UserSSHKey             Resource = "public SSH key" // with which a user signs in
	Workspace              Resource = "workspace"
	WorkspaceBuild         Resource = "workspace build"
	WorkspaceState         Resource = "workspace state" // Terraform's: holds credentials
)

// Level is how far an object is shared.
type Level string

const (
	LevelUse   Level = "use"   // read it, and use a template or connect to a workspace
	LevelAdmin Level = "admin" // also change it
)

// Sharing lists with whom an object is shared: the ids of users and groups, and the level of each. An organization's id
// means its group Everyone. The database stores it as a JSON object.
type Sharing map[uuid.UUID]Level

// Within reports whether the sharing gives no user or group more than outer does.
func (s Sharing) Within(outer Sharing) bool {
	for id, level := range s {
		if has := outer[id]; has != level && !(has == LevelAdmin && level == LevelUse) {
			return false
		}
	}
	return true
}

// Object is the target of an action.
type Object struct {
	Resource     Resource
	Owner        uuid.UUID // zero if no user owns it
	Organization uuid.UUID // zero if it belongs to the deployment
	Shared       Sharing
	// Account is set for a user's account and what belongs to it: the user, with all their roles. Others may read it,
	// but need every power of those roles for all else, because changing an account allows acting as its user.
	Account *Actor
	// ID is the id of the workspace or template that it is or belongs to; zero if that is not known. Tokens can be
	// limited to ids.
	ID uuid.UUID
}

// Of returns the object of kind r that owner owns; uuid.Nil means that no user owns it. It belongs to the deployment.
func Of(r Resource, owner uuid.UUID) Object { return Object{Resource: r, Owner: owner} }

// In returns the object as one of an organization.
func (o Object) In(organization uuid.UUID) Object {
	o.Organization = organization
	return o
}

// WithID returns the object as a certain one: a workspace or template, or a part of it.
func (o Object) WithID(id uuid.UUID) Object {
	o.ID = id
	return o
}

// SharedWith returns the object with its sharing.
func (o Object) SharedWith(s Sharing) Object {
	o.Shared = s
	return o
}

// As returns the same object as another kind: what belongs to a workspace or template has its owner, organization and
// sharing.
func (o Object) As(r Resource) Object {
	o.Resource = r
	return o
}

// NotFound returns the answer about an object that does not exist, or that the actor may not see: the two must not
// differ.
func NotFound(resource Resource) error {
	return fault.New(fault.NotFound, "This %s does not exist, or you do not have access to it.", resource)
}

func forbidden(action Action, resource Resource) error {
	f := fault.New(fault.Forbidden, "You do not have permission to %s.", phrase(action, resource))
	g, ok := table[resource][action]
	switch {
	case !ok:
		return f
	case g.private:
		return f.WithDetail("No role allows it: only its owner can, and those with whom it is shared.")
	case g.to&templateAdmin != 0:
		return f.WithDetail("Requires the role %s. Ask an owner of the deployment.", RoleTemplateAdmin)
	case g.to&self != 0:
		return f.WithDetail("Only its owner, or an owner of the deployment, can do this.")
	case g.to&userAdmin != 0:
		return f.WithDetail("Requires the role %s. Ask an owner of the deployment.", RoleUserAdmin)
	case g.to&orgAdmin != 0:
		return f.WithDetail("Requires the role %s. Ask an admin of the organization.", RoleOrganizationAdmin)
	}
	return f.WithDetail("Requires the role %s.", RoleOwner)
}
