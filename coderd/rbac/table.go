package rbac

// relation is a set of ways in which an actor can be related to an object: by a role, by ownership or by sharing. A row
// of the table lists the relations that suffice.
type relation uint32

const (
	self   relation = 1 << iota // the object's owner, while a member of its organization
	member                      // a member of the object's organization
	user                        // the object is shared with the actor
	admin                       // the object is shared with the actor for administration

	// Roles of the deployment. An owner may do everything that the table lists, except what is private.
	owner
	userAdmin
	templateAdmin
	auditor

	// Roles in the object's organization.
	orgAdmin
	orgUserAdmin
	orgTemplateAdmin
	orgAuditor

	// orgPublisher administers the templates of some organization, whichever the object belongs to.
	orgPublisher
)

// grant is one row of the table.
type grant struct {
	to relation
	// personal marks what a workspace's token cannot do: the workspace's template can read that token.
	personal bool
	// private rows are beyond every role, an owner's of the deployment too: only ownership and sharing count.
	private bool
}

const (
	publishers = templateAdmin | orgAdmin | orgTemplateAdmin
	readers    = self | user | publishers // of a workspace and its parts
	managers   = userAdmin | orgAdmin | orgUserAdmin
)

// table is the permission table. An action that is not listed for a resource does not exist, not even for owners.
var table = map[Resource]map[Action]grant{
	User: {
		Create: {to: userAdmin, personal: true},
		Read:   {to: self | userAdmin | auditor},
		Update: {to: self | userAdmin, personal: true},
		Delete: {to: userAdmin, personal: true},
		Manage: {to: userAdmin, personal: true},
	},
	APIKey: {
		Create: {to: self, personal: true},
		Read:   {to: self},
		Delete: {to: self, personal: true},
	},
	SSHKey: {
		Read:   {to: self},
		Update: {to: self, personal: true},
	},
	ExternalAuth: {
		Read:   {to: self},
		Update: {to: self, personal: true},
		Delete: {to: self, personal: true},
	},
	UserSecret: {
		Create: {to: self, personal: true, private: true},
		Read:   {to: self, personal: true, private: true},
		Update: {to: self, personal: true, private: true},
		Delete: {to: self, personal: true, private: true},
	},
	UserDevice: { // it acts as its user, so that only the user adds one
		Create: {to: self, personal: true, private: true},
		Read:   {to: self | userAdmin},
		Update: {to: self, personal: true, private: true},
		Delete: {to: self | userAdmin, personal: true},
	},
	UserSSHKey: { // who adds one can sign in as its user from then on, so that only the user does
		Create: {to: self, personal: true, private: true},
		Read:   {to: self | userAdmin},
		Update: {to: self, personal: true, private: true},
		Delete: {to: self | userAdmin, personal: true},
	},
	Notification: {
		Read:   {to: self, personal: true, private: true},
		Update: {to: self, personal: true, private: true},
	},
	Organization: {
		Create: {personal: true},
		Read:   {to: member | userAdmin | templateAdmin | auditor},
		Update: {to: orgAdmin, personal: true},
		Delete: {personal: true},
	},
	OrganizationInvitation: { // who may create members may invite, and withdraw invitations
		Read:   {to: self, personal: true, private: true},
		Update: {to: self, personal: true, private: true}, // accept or decline it
	},
	OrganizationMember: {
		Create: {to: managers, personal: true},
		Read:   {to: member | userAdmin | templateAdmin | auditor},
		Update: {to: managers, personal: true},
		Delete: {to: managers, personal: true},
	},
	OrganizationRole: {
		Create: {to: orgAdmin, personal: true},
		Read:   {to: member | userAdmin | auditor},
		Update: {to: orgAdmin, personal: true},
		Delete: {to: orgAdmin, personal: true},
	},
	Group: {
		Create: {to: managers, personal: true},
		Read:   {to: member | userAdmin | templateAdmin | auditor},
		Update: {to: managers, personal: true},
		Delete: {to: managers, personal: true},
	},
	File: {
		Create: {to: admin | templateAdmin | orgPublisher}, // admin and publishers: of a template that is made from it
		Read:   {to: self | admin | publishers},
	},
	Template: {
		Create: {to: publishers},
		Read:   {to: user | publishers | auditor | orgAuditor},
		Use:    {to: user | publishers},
		Update: {to: admin | publishers},
		Delete: {to: admin | publishers},
		Share:  {to: admin | publishers, personal: true},
	},
	TemplateConsent: { // starting a workspace creates it
		Read:   {to: self, personal: true, private: true},
		Delete: {to: self, personal: true, private: true},
	},
	TemplateVersion: {
		Create: {to: admin | publishers},
		Read:   {to: self | user | publishers | auditor | orgAuditor},
		Update: {to: admin | publishers},
		Delete: {to: admin | publishers},
	},
	Workspace: {
		Create:   {to: self | orgAdmin},
		Read:     {to: readers},
		Update:   {to: self | admin | orgAdmin},
		Delete:   {to: self | orgAdmin},
		Connect:  {to: self | user, private: true},
		OpenApp:  {to: self | user, private: true},
		Share:    {to: self | admin, personal: true, private: true}, // else a role would reach into it by sharing it with itself
		Withdraw: {to: self | admin | orgAdmin, personal: true},
		Transfer: {to: orgAdmin, personal: true},
	},
	WorkspaceBuild: {
		Create: {to: self | admin | orgAdmin},
		Read:   {to: readers},
		Update: {to: self | admin | orgAdmin}, // cancel
	},
	WorkspaceState: {
		Read:   {personal: true},
		Update: {personal: true},
	},
	Agent: {
		Read:    {to: readers},
		Connect: {to: self | user, private: true},
		Update:  {to: self, personal: true, private: true}, // be it: read the token of an external agent
	},
	ProvisionerDaemon: {
		Create: {to: self | publishers, personal: true}, // run one: it sees what its jobs do
		Read:   {to: self | publishers},
		Delete: {to: publishers},
	},
	ProvisionerKey: {
		Create: {to: publishers, personal: true},
		Read:   {to: publishers},
		Delete: {to: publishers, personal: true},
	},
	ProvisionerJob: {
		Read:   {to: self | publishers},
		Update: {to: self | publishers}, // cancel
	},
	AuditLog: {
		Read: {to: auditor | orgAuditor, personal: true},
	},
	ConnectionLog: {
		Read: {to: auditor | orgAuditor, personal: true},
	},
	Deployment: {
		Read:   {},
		Update: {personal: true},
	},
	Mesh: {
		Connect: {to: self},
		Read:    {},
	},
}
