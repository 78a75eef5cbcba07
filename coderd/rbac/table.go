package rbac

// scope defines whose objects a grant covers.
type scope int

const (
	none scope = iota
	own
	all
)

func (s scope) covers(isOwn bool) bool { return s == all || s == own && isOwn }

// grant is one row of the table: what the roles below owner may do. A template admin is also a member.
type grant struct {
	member        scope
	templateAdmin scope
	personal      bool // not with a workspace's token
}

// table is the permission table. An action that is not listed for a resource does not exist, not even for owners.
var table = map[Resource]map[Action]grant{
	User: {
		Create: {personal: true},
		Read:   {member: own},
		Update: {member: own, personal: true},
		Delete: {personal: true},
		Manage: {personal: true},
	},
	APIKey: {
		Create: {member: own, personal: true},
		Read:   {member: own},
		Delete: {member: own, personal: true},
	},
	SSHKey: {
		Read:   {member: own},
		Update: {member: own, personal: true},
	},
	ExternalAuth: {
		Read:   {member: own},
		Update: {member: own, personal: true},
		Delete: {member: own, personal: true},
	},
	Organization: {
		Read: {member: all},
	},
	OrganizationMember: {
		Read: {member: all},
	},
	File: {
		Create: {templateAdmin: all},
		Read:   {templateAdmin: all},
	},
	Template: {
		Create: {templateAdmin: all},
		Read:   {member: all},
		Update: {templateAdmin: all},
		Delete: {templateAdmin: all},
	},
	TemplateVersion: {
		Create: {templateAdmin: all},
		Read:   {member: all},
		Update: {templateAdmin: all},
		Delete: {templateAdmin: all},
	},
	Workspace: {
		Create:  {member: own},
		Read:    {member: own, templateAdmin: all},
		Update:  {member: own},
		Delete:  {member: own},
		Connect: {member: own},
	},
	WorkspaceBuild: {
		Create: {member: own},
		Read:   {member: own, templateAdmin: all},
		Update: {member: own}, // cancel
	},
	WorkspaceState: {
		Read:   {personal: true},
		Update: {personal: true},
	},
	Agent: {
		Read:    {member: own, templateAdmin: all},
		Connect: {member: own},
	},
	ProvisionerDaemon: {
		Create: {member: own, templateAdmin: all, personal: true}, // run one: it sees what its jobs do
		Read:   {member: own, templateAdmin: all},
		Delete: {templateAdmin: all},
	},
	ProvisionerKey: {
		Create: {templateAdmin: all, personal: true},
		Read:   {templateAdmin: all},
		Delete: {templateAdmin: all, personal: true},
	},
	ProvisionerJob: {
		Read:   {member: own, templateAdmin: all},
		Update: {member: own, templateAdmin: all}, // cancel
	},
	Deployment: {
		Read:   {},
		Update: {personal: true},
	},
	Mesh: {
		Connect: {member: own},
		Read:    {},
	},
}
