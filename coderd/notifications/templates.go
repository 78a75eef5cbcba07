package notifications

import (
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Template is the text of one kind of event.
type Template struct {
	ID          uuid.UUID
	Name, Group string
	Icon        string // of the inbox: one of sdk's
	// Title and Body name labels in double braces. The body's paragraphs are separated by empty lines; ** marks what is important.
	Title, Body string
	Actions     []ActionTemplate
	Custom      bool // users choose the text
	// Always means that users cannot turn the event off.
	Always bool
}

// ActionTemplate is a link. Its path is on this server, and names labels.
type ActionTemplate struct{ Label, Path string }

// Groups of templates, as pages show them.
const (
	groupWorkspaces = "Workspace events"
	groupUsers      = "User events"
	groupTemplates  = "Template events"
	groupOther      = "Other notifications"
)

var (
	viewWorkspace = ActionTemplate{"View workspace", "/@{{owner}}/{{workspace}}"}
	viewBuild     = ActionTemplate{"View build", "/@{{owner}}/{{workspace}}/builds/{{build}}"}
	viewUsers     = ActionTemplate{"View users", "/users"}
)

// The events. Their ids never change: preferences refer to them.
var (
	WorkspaceDeleted = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a01"), Name: "Workspace Deleted", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title: `Workspace "{{workspace}}" deleted`,
		Body:  "Your workspace **{{workspace}}** was deleted.\n\nThe reason was: **{{reason}}**",
	}
	WorkspaceAutobuildFailed = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a02"), Name: "Workspace Autobuild Failed", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Automatic {{transition}} of workspace "{{workspace}}" failed`,
		Body:    "The automatic {{transition}} of your workspace **{{workspace}}** failed. {{cause}}\n\nThe server tries again later. The build's log has the cause.",
		Actions: []ActionTemplate{viewBuild},
	}
	WorkspaceManualBuildFailed = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a03"), Name: "Workspace Manual Build Failed", Group: groupTemplates, Icon: sdk.InboxIconTemplate,
		Title:   `Workspace "{{workspace}}" of template "{{template}}" failed to {{transition}}`,
		Body:    "A build that **{{initiator}}** requested failed: {{transition}} **{{owner}}/{{workspace}}**.\n\nIt used version **{{version}}** of the template **{{template}}**.",
		Actions: []ActionTemplate{viewBuild},
	}
	WorkspaceDormant = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a04"), Name: "Workspace Marked as Dormant", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" is dormant`,
		Body:    "Your workspace **{{workspace}}** is now dormant. It cannot be used until you start it.\n\n{{reason}}",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceMarkedForDeletion = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a05"), Name: "Workspace Marked for Deletion", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" will be deleted`,
		Body:    "Your workspace **{{workspace}}** will be deleted.\n\n{{reason}}\n\nStart the workspace to keep it.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceStopsSoon = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a06"), Name: "Workspace Stops Soon", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" stops soon`,
		Body:    "Your workspace **{{workspace}}** stops soon.\n\n{{reason}}",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceDormantSoon = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a07"), Name: "Workspace Becomes Dormant Soon", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" becomes dormant soon`,
		Body:    "Your workspace **{{workspace}}** becomes dormant soon.\n\n{{reason}}\n\nUse the workspace to keep it as it is.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceAutoUpdated = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a08"), Name: "Workspace Updated Automatically", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" was updated`,
		Body:    "Your workspace **{{workspace}}** now uses version **{{version}}** of its template **{{template}}**, because the template requires it.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceShared = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a09"), Name: "Workspace Shared with You", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" was shared with you`,
		Body:    "**{{initiator}}** shared the workspace **{{owner}}/{{workspace}}** with you.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceGivenAway = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a23"), Name: "Workspace Transferred to Another User", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace, Always: true,
		Title: `Workspace "{{former_name}}" now belongs to {{owner}}`,
		Body: "**{{initiator}}** transferred your workspace **{{former_name}}** to **{{owner}}**. You can no longer reach it.\n\n" +
			"Its files stay in it. If they contain keys, tokens or passwords of yours, replace these where they are used.",
	}
	WorkspaceReceived = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a24"), Name: "Workspace Transferred to You", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace, Always: true,
		Title: `Workspace "{{workspace}}" was transferred to you`,
		Body: "**{{initiator}}** transferred the workspace **{{workspace}}** of **{{former_owner}}** to you. It is stopped.\n\n" +
			"Files and programs that **{{former_owner}}** left in it run with your credentials once you start it. Start it only if you trust them.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceOutOfMemory = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a21"), Name: "Workspace Out Of Memory", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" is low on memory`,
		Body:    "Your workspace **{{workspace}}** uses **{{percent}} %** of its memory, and passed the threshold of {{threshold}} %.\n\nPrograms may end when no memory is left. Stop those that you do not need.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceOutOfDisk = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a22"), Name: "Workspace Out Of Disk", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" is low on disk space`,
		Body:    "In your workspace **{{workspace}}**, {{volumes}}.\n\nPrograms cannot write files when no space is left. Delete those that you do not need.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	UserCreated = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a10"), Name: "User Account Created", Group: groupUsers, Icon: sdk.InboxIconAccount,
		Title: `User account "{{account}}" created`, Body: "The account **{{account}}** was created by **{{initiator}}**.", Actions: []ActionTemplate{viewUsers},
	}
	UserDeleted = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a11"), Name: "User Account Deleted", Group: groupUsers, Icon: sdk.InboxIconAccount,
		Title: `User account "{{account}}" deleted`, Body: "The account **{{account}}** was deleted by **{{initiator}}**.", Actions: []ActionTemplate{viewUsers},
	}
	UserSuspended = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a12"), Name: "User Account Suspended", Group: groupUsers, Icon: sdk.InboxIconAccount,
		Title: `User account "{{account}}" suspended`, Body: "The account **{{account}}** was suspended by **{{initiator}}**.", Actions: []ActionTemplate{viewUsers},
	}
	UserActivated = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a13"), Name: "User Account Activated", Group: groupUsers, Icon: sdk.InboxIconAccount,
		Title: `User account "{{account}}" activated`, Body: "The account **{{account}}** was activated by **{{initiator}}**.", Actions: []ActionTemplate{viewUsers},
	}
	YourAccountSuspended = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a14"), Name: "Your Account Suspended", Group: groupUsers, Icon: sdk.InboxIconAccount, Always: true,
		Title: "Your account was suspended", Body: "Your account **{{account}}** was suspended by **{{initiator}}**.\n\nIf you think that this is a mistake, ask an administrator.",
	}
	YourAccountActivated = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a15"), Name: "Your Account Activated", Group: groupUsers, Icon: sdk.InboxIconAccount, Always: true,
		Title: "Your account was activated", Body: "Your account **{{account}}** was activated by **{{initiator}}**. You can sign in again.",
		Actions: []ActionTemplate{{"Sign in", "/login"}},
	}
	SignInRefused = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a16"), Name: "Sign In Again", Group: groupUsers, Icon: sdk.InboxIconAccount, Always: true,
		Title: "Sign in again", Body: "The identity provider no longer confirms your sign-in, so your sessions ended. Sign in again; if the provider refuses, ask its administrator.",
		Actions: []ActionTemplate{{"Sign in", "/login"}},
	}
	DeviceAdded = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a25"), Name: "Device Added", Group: groupUsers, Icon: sdk.InboxIconAccount, Always: true,
		Title: `Device "{{device}}" added to your account`,
		Body: "The device **{{device}}** was added to your account on {{time}}, from **{{address}}**. Until {{expires}} it reaches your workspaces over WireGuard, as you.\n\n" +
			"If it is not yours, remove it, end your sessions and change your password.",
		Actions: []ActionTemplate{{"View devices", "/account"}},
	}
	OrganizationInvitation = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a30"), Name: "Invitation to an Organization", Group: groupUsers, Icon: sdk.InboxIconAccount, Always: true,
		Title:   `You are invited to the organization "{{organization}}"`,
		Body:    "**{{initiator}}** invites you to the organization **{{organization}}**. If you accept, its administrators can create workspaces for you.\n\nThe invitation expires on {{expires}}.",
		Actions: []ActionTemplate{{"Answer", "/organizations"}},
	}
	OrganizationInvitationAnswered = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a31"), Name: "Invitation Answered", Group: groupUsers, Icon: sdk.InboxIconAccount,
		Title: `{{account}} {{answer}} your invitation to "{{organization}}"`, Body: "**{{account}}** {{answer}} your invitation to the organization **{{organization}}**.",
	}
	TemplateDeleted = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a17"), Name: "Template Deleted", Group: groupTemplates, Icon: sdk.InboxIconTemplate,
		Title: `Template "{{template}}" deleted`, Body: "The template **{{template}}** was deleted by **{{initiator}}**.",
		Actions: []ActionTemplate{{"View templates", "/templates"}},
	}
	TemplateDeprecated = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a18"), Name: "Template Deprecated", Group: groupTemplates, Icon: sdk.InboxIconTemplate,
		Title:   `Template "{{template}}" is deprecated`,
		Body:    "The template **{{template}}**, which you have workspaces of, is deprecated: no new workspaces can be created with it.\n\n{{message}}",
		Actions: []ActionTemplate{{"View templates", "/templates"}},
	}
	Test = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a19"), Name: "Test Notification", Group: groupOther, Icon: sdk.InboxIconOther, Always: true,
		Title: "A test notification", Body: "This is a test. If you can read it, notifications reach you.",
		Actions: []ActionTemplate{{"Change your preferences", "/account"}},
	}
	Custom = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a20"), Name: "Custom Notification", Group: groupOther, Icon: sdk.InboxIconOther, Custom: true,
		Title: "{{title}}", Body: "{{message}}",
	}
)

// All lists the templates in the order in which pages show them.
func All() []Template {
	return []Template{
		WorkspaceStopsSoon, WorkspaceDormantSoon, WorkspaceDormant, WorkspaceMarkedForDeletion, WorkspaceDeleted, WorkspaceAutobuildFailed,
		WorkspaceAutoUpdated, WorkspaceOutOfMemory, WorkspaceOutOfDisk, WorkspaceShared, WorkspaceGivenAway, WorkspaceReceived, UserCreated, UserDeleted, UserSuspended, UserActivated, YourAccountSuspended,
		YourAccountActivated, SignInRefused, DeviceAdded, OrganizationInvitation, OrganizationInvitationAnswered, WorkspaceManualBuildFailed, TemplateDeleted, TemplateDeprecated, Test, Custom,
	}
}

func find(id uuid.UUID) (Template, bool) {
	all := All()
	i := slices.IndexFunc(all, func(t Template) bool { return t.ID == id })
	if i < 0 {
		return Template{}, false
	}
	return all[i], true
}
