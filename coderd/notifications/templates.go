package notifications

import (
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Template is the text of one kind of event.
type Template struct {
	ID          uuid.UUID
	former      uuid.UUID // its id before migration 87, or zero
	Name, Group string
	Icon        string // of the inbox: one of sdk's
	// Title and Body name labels in double braces. The body's paragraphs are separated by empty lines; ** marks what is
	// important.
	Title, Body string
	Actions     []ActionTemplate
	Custom      bool // users choose the text
	// Always means that users cannot turn the event off.
	Always bool
	// Optional means that the event is off until a user turns it on.
	Optional bool
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

// former returns an id that a template had when all ids were this server's own.
func former(last byte) uuid.UUID {
	id := uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a00")
	id[15] = last
	return id
}

// The events. Their ids never change: preferences refer to them. Events that Coder has too have its ids, which programs
// know: the plugin of VS Code asks for WorkspaceOutOfMemory and WorkspaceOutOfDisk by id.
var (
	WorkspaceDeleted = Template{
		ID: uuid.MustParse("f517da0b-cdc9-410f-ab89-a86107c420ed"), former: former(0x01), Name: "Workspace Deleted",
		Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title: `Workspace "{{workspace}}" deleted`,
		Body:  "Your workspace **{{workspace}}** was deleted.\n\nThe reason was: **{{reason}}**",
	}
	WorkspaceAutobuildFailed = Template{
		ID: uuid.MustParse("381df2a9-c0c0-4749-420f-80a9280c66f9"), former: former(0x02),
		Name: "Workspace Autobuild Failed", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Automatic {{transition}} of workspace "{{workspace}}" failed`,
		Body:    "The automatic {{transition}} of your workspace **{{workspace}}** failed. {{cause}}\n\nThe server tries again later. The build's log has the cause.",
		Actions: []ActionTemplate{viewBuild},
	}
	WorkspaceManualBuildFailed = Template{
		ID: uuid.MustParse("2faeee0f-26cb-4e96-821c-85ccb9f71513"), former: former(0x03),
		Name: "Workspace Manual Build Failed", Group: groupTemplates, Icon: sdk.InboxIconTemplate,
		Title:   `Workspace "{{workspace}}" of template "{{template}}" failed to {{transition}}`,
		Body:    "A build that **{{initiator}}** requested failed: {{transition}} **{{owner}}/{{workspace}}**.\n\nIt used version **{{version}}** of the template **{{template}}**.",
		Actions: []ActionTemplate{viewBuild},
	}
	WorkspaceCreated = Template{
		ID: uuid.MustParse("281fdf73-c6d6-4cbb-8ff5-888baf8a2fff"), Name: "Workspace Created", Group: groupTemplates,
		Icon: sdk.InboxIconWorkspace, Optional: true,
		Title:   `Workspace "{{workspace}}" created`,
		Body:    "**{{initiator}}** created the workspace **{{workspace}}** of **{{owner}}**, of the version **{{version}}** of the template **{{template}}**.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceManuallyUpdated = Template{
		ID: uuid.MustParse("d089fe7b-d5c5-4c0c-aaf5-689859f7d392"), Name: "Workspace Manually Updated",
		Group: groupTemplates, Icon: sdk.InboxIconWorkspace, Optional: true,
		Title:   `Workspace "{{workspace}}" updated`,
		Body:    "**{{initiator}}** updated the workspace **{{workspace}}** of **{{owner}}** to the version **{{version}}** of the template **{{template}}**.",
		Actions: []ActionTemplate{viewBuild},
	}
	WorkspaceBuildsFailedReport = Template{
		ID: uuid.MustParse("34a20db2-e9cc-4a93-b0e4-8569699d7a00"), Name: "Report: Workspace Builds Failed",
		Group: groupTemplates, Icon: sdk.InboxIconTemplate,
		Title: `{{failed}} of {{total}} builds of template "{{template}}" failed last week`,
		Body: "In the week from {{from}} to {{to}}, **{{failed}}** of **{{total}}** builds of workspaces of the template **{{template}}** failed.\n\n" +
			"By version: {{versions}}\n\nBy workspace: {{workspaces}}",
		Actions: []ActionTemplate{{"View workspaces", "/workspaces?q=template%3A{{template}}"}},
	}
	WorkspaceDormant = Template{
		ID: uuid.MustParse("0ea69165-ec14-4314-91f1-69566ac3c5a0"), former: former(0x04),
		Name: "Workspace Marked as Dormant", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" is dormant`,
		Body:    "Your workspace **{{workspace}}** is now dormant. It stays stopped until you wake it.\n\n{{reason}}",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceMarkedForDeletion = Template{
		ID: uuid.MustParse("51ce2fdf-c9ca-4be1-8d70-628674f9bc42"), former: former(0x05),
		Name: "Workspace Marked for Deletion", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" will be deleted`,
		Body:    "Your workspace **{{workspace}}** will be deleted.\n\n{{reason}}",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceStopsSoon = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a06"), Name: "Workspace Stops Soon",
		Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" stops soon`,
		Body:    "Your workspace **{{workspace}}** stops soon.\n\n{{reason}}",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceDormantSoon = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a07"), Name: "Workspace Becomes Dormant Soon",
		Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" becomes dormant soon`,
		Body:    "Your workspace **{{workspace}}** becomes dormant soon.\n\n{{reason}}\n\nUse the workspace to keep it as it is.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceAutoUpdated = Template{
		ID: uuid.MustParse("c34a0c09-0704-4cac-bd1c-0c0146811c2b"), former: former(0x08),
		Name: "Workspace Updated Automatically", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" was updated`,
		Body:    "Your workspace **{{workspace}}** now uses version **{{version}}** of its template **{{template}}**, because the template requires it.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceShared = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a09"), Name: "Workspace Shared with You",
		Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" was shared with you`,
		Body:    "**{{initiator}}** shared the workspace **{{owner}}/{{workspace}}** with you.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceGivenAway = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a23"), Name: "Workspace Transferred to Another User",
		Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace, Always: true,
		Title: `Workspace "{{former_name}}" now belongs to {{owner}}`,
		Body: "**{{initiator}}** transferred your workspace **{{former_name}}** to **{{owner}}**. You can no longer reach it.\n\n" +
			"Its files stay in it. If they contain keys, tokens or passwords of yours, replace these where they are used.",
	}
	WorkspaceReceived = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a24"), Name: "Workspace Transferred to You",
		Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace, Always: true,
		Title: `Workspace "{{workspace}}" was transferred to you`,
		Body: "**{{initiator}}** transferred the workspace **{{workspace}}** of **{{former_owner}}** to you. It is stopped.\n\n" +
			"Files and programs that **{{former_owner}}** left in it run with your credentials once you start it. Start it only if you trust them.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceOutOfMemory = Template{
		ID: uuid.MustParse("a9d027b4-ac49-4fb1-9f6d-45af15f64e7a"), former: former(0x21),
		Name: "Workspace Out Of Memory", Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" is low on memory`,
		Body:    "Your workspace **{{workspace}}** uses **{{percent}} %** of its memory, and passed the threshold of {{threshold}} %.\n\nPrograms may end when no memory is left. Stop those that you do not need.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	WorkspaceOutOfDisk = Template{
		ID: uuid.MustParse("f047f6a3-5713-40f7-85aa-0394cce9fa3a"), former: former(0x22), Name: "Workspace Out Of Disk",
		Group: groupWorkspaces, Icon: sdk.InboxIconWorkspace,
		Title:   `Workspace "{{workspace}}" is low on disk space`,
		Body:    "In your workspace **{{workspace}}**, {{volumes}}.\n\nPrograms cannot write files when no space is left. Delete those that you do not need.",
		Actions: []ActionTemplate{viewWorkspace},
	}
	UserCreated = Template{
		ID: uuid.MustParse("4e19c0ac-94e1-4532-9515-d1801aa283b2"), former: former(0x10), Name: "User Account Created",
		Group: groupUsers, Icon: sdk.InboxIconAccount,
		Title: `User account "{{account}}" created`, Body: "The account **{{account}}** was created by **{{initiator}}**.", Actions: []ActionTemplate{viewUsers},
	}
	UserDeleted = Template{
		ID: uuid.MustParse("f44d9314-ad03-4bc8-95d0-5cad491da6b6"), former: former(0x11), Name: "User Account Deleted",
		Group: groupUsers, Icon: sdk.InboxIconAccount,
		Title: `User account "{{account}}" deleted`, Body: "The account **{{account}}** was deleted by **{{initiator}}**.", Actions: []ActionTemplate{viewUsers},
	}
	UserSuspended = Template{
		ID: uuid.MustParse("b02ddd82-4733-4d02-a2d7-c36f3598997d"), former: former(0x12),
		Name: "User Account Suspended", Group: groupUsers, Icon: sdk.InboxIconAccount,
		Title: `User account "{{account}}" suspended`, Body: "The account **{{account}}** was suspended by **{{initiator}}**.", Actions: []ActionTemplate{viewUsers},
	}
	UserActivated = Template{
		ID: uuid.MustParse("9f5af851-8408-4e73-a7a1-c6502ba46689"), former: former(0x13),
		Name: "User Account Activated", Group: groupUsers, Icon: sdk.InboxIconAccount,
		Title: `User account "{{account}}" activated`, Body: "The account **{{account}}** was activated by **{{initiator}}**.", Actions: []ActionTemplate{viewUsers},
	}
	YourAccountSuspended = Template{
		ID: uuid.MustParse("6a2f0609-9b69-4d36-a989-9f5925b6cbff"), former: former(0x14),
		Name: "Your Account Suspended", Group: groupUsers, Icon: sdk.InboxIconAccount, Always: true,
		Title: "Your account was suspended", Body: "Your account **{{account}}** was suspended by **{{initiator}}**.\n\nIf you think that this is a mistake, ask an administrator.",
	}
	YourAccountActivated = Template{
		ID: uuid.MustParse("1a6a6bea-ee0a-43e2-9e7c-eabdb53730e4"), former: former(0x15),
		Name: "Your Account Activated", Group: groupUsers, Icon: sdk.InboxIconAccount, Always: true,
		Title:   "Your account was activated",
		Body:    "Your account **{{account}}** was activated by **{{initiator}}**. You can sign in again.",
		Actions: []ActionTemplate{{"Sign in", "/login"}},
	}
	SignInRefused = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a16"), Name: "Sign In Again", Group: groupUsers,
		Icon: sdk.InboxIconAccount, Always: true,
		Title: "Sign in again", Body: "The identity provider no longer confirms your sign-in, so your sessions ended. Sign in again; if the provider refuses, ask its administrator.",
		Actions: []ActionTemplate{{"Sign in", "/login"}},
	}
	DeviceAdded = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a25"), Name: "Device Added", Group: groupUsers,
		Icon: sdk.InboxIconAccount, Always: true,
		Title: `Device "{{device}}" added to your account`,
		Body: "The device **{{device}}** was added to your account on {{time}}, from **{{address}}**. Until {{expires}} it reaches your workspaces over WireGuard, as you.\n\n" +
			"If it is not yours, remove it, end your sessions and change your password.",
		Actions: []ActionTemplate{{"View devices", "/account"}},
	}
	OrganizationInvitation = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a30"), Name: "Invitation to an Organization",
		Group: groupUsers, Icon: sdk.InboxIconAccount, Always: true,
		Title:   `You are invited to the organization "{{organization}}"`,
		Body:    "**{{initiator}}** invites you to the organization **{{organization}}**. If you accept, its administrators can create workspaces for you.\n\nThe invitation expires on {{expires}}.",
		Actions: []ActionTemplate{{"Answer", "/organizations"}},
	}
	OrganizationInvitationAnswered = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a31"), Name: "Invitation Answered", Group: groupUsers,
		Icon:  sdk.InboxIconAccount,
		Title: `{{account}} {{answer}} your invitation to "{{organization}}"`, Body: "**{{account}}** {{answer}} your invitation to the organization **{{organization}}**.",
	}
	TemplateDeleted = Template{
		ID: uuid.MustParse("29a09665-2a4c-403f-9648-54301670e7be"), former: former(0x17), Name: "Template Deleted",
		Group: groupTemplates, Icon: sdk.InboxIconTemplate,
		Title: `Template "{{template}}" deleted`, Body: "The template **{{template}}** was deleted by **{{initiator}}**.",
		Actions: []ActionTemplate{{"View templates", "/templates"}},
	}
	TemplateDeprecated = Template{
		ID: uuid.MustParse("f40fae84-55a2-42cd-99fa-b41c1ca64894"), former: former(0x18), Name: "Template Deprecated",
		Group: groupTemplates, Icon: sdk.InboxIconTemplate,
		Title:   `Template "{{template}}" is deprecated`,
		Body:    "The template **{{template}}**, which you have workspaces of, is deprecated: no new workspaces can be created with it.\n\n{{message}}",
		Actions: []ActionTemplate{{"View templates", "/templates"}},
	}
	WebhookDisabled = Template{
		ID: uuid.MustParse("5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a32"), Name: "Webhook Disabled", Group: groupOther,
		Icon:    sdk.InboxIconOther,
		Title:   `Webhook "{{webhook}}" was disabled`,
		Body:    "The webhook **{{webhook}}** gets no more events, because deliveries failed for hours: {{reason}}.\n\nEnable it when its receiver works again, and replay what it missed.",
		Actions: []ActionTemplate{{"View webhooks", "/deployment/webhooks"}},
	}
	Test = Template{
		ID: uuid.MustParse("c425f63e-716a-4bf4-ae24-78348f706c3f"), former: former(0x19), Name: "Test Notification",
		Group: groupOther, Icon: sdk.InboxIconOther, Always: true,
		Title: "A test notification", Body: "This is a test. If you can read it, notifications reach you.",
		Actions: []ActionTemplate{{"Change your preferences", "/account"}},
	}
	Custom = Template{
		ID: uuid.MustParse("39b1e189-c857-4b0c-877a-511144c18516"), former: former(0x20), Name: "Custom Notification",
		Group: groupOther, Icon: sdk.InboxIconOther, Custom: true,
		Title: "{{title}}", Body: "{{message}}",
	}
)

// All lists the templates in the order in which pages show them.
func All() []Template {
	return []Template{
		WorkspaceStopsSoon, WorkspaceDormantSoon, WorkspaceDormant, WorkspaceMarkedForDeletion, WorkspaceDeleted, WorkspaceAutobuildFailed,
		WorkspaceAutoUpdated, WorkspaceOutOfMemory, WorkspaceOutOfDisk, WorkspaceShared, WorkspaceGivenAway, WorkspaceReceived, UserCreated, UserDeleted, UserSuspended, UserActivated, YourAccountSuspended,
		YourAccountActivated, SignInRefused, DeviceAdded, OrganizationInvitation, OrganizationInvitationAnswered, WorkspaceManualBuildFailed, WorkspaceBuildsFailedReport,
		WorkspaceCreated, WorkspaceManuallyUpdated, TemplateDeleted, TemplateDeprecated, WebhookDisabled, Test, Custom,
	}
}

// find returns the template with an id of now or before. Servers of the release before record the latter.
func find(id uuid.UUID) (Template, bool) {
	all := All()
	i := slices.IndexFunc(all, func(t Template) bool { return t.ID == id || t.former == id && id != uuid.Nil })
	if i < 0 {
		return Template{}, false
	}
	return all[i], true
}
