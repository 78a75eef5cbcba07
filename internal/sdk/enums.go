package sdk

import "slices"

// The enums are closed: clients in the field reject a value they do not know.

type WorkspaceStatus string

const (
	WorkspacePending   WorkspaceStatus = "pending"
	WorkspaceStarting  WorkspaceStatus = "starting"
	WorkspaceRunning   WorkspaceStatus = "running"
	WorkspaceStopping  WorkspaceStatus = "stopping"
	WorkspaceStopped   WorkspaceStatus = "stopped"
	WorkspaceFailed    WorkspaceStatus = "failed"
	WorkspaceCanceling WorkspaceStatus = "canceling"
	WorkspaceCanceled  WorkspaceStatus = "canceled"
	WorkspaceDeleting  WorkspaceStatus = "deleting"
	WorkspaceDeleted   WorkspaceStatus = "deleted"
)

// WorkspaceOrder is an order of lists of workspaces.
type WorkspaceOrder string

const (
	OrderName     WorkspaceOrder = "name"
	OrderUsed     WorkspaceOrder = "used"    // last used first
	OrderCreated  WorkspaceOrder = "created" // newest first
	OrderStatus   WorkspaceOrder = "status"
	OrderOwner    WorkspaceOrder = "owner"
	OrderTemplate WorkspaceOrder = "template" // by its display name
)

// Theme is a choice of colors for the dashboard.
type Theme string

const (
	ThemeUnset Theme = ""     // no choice
	ThemeAuto  Theme = "auto" // as the computer's
	ThemeLight Theme = "light"
	ThemeDark  Theme = "dark"
)

// TerminalFont is a font of web terminals. Browsers use it if the computer has it.
type TerminalFont string

const (
	FontDefault       TerminalFont = ""
	FontFiraCode      TerminalFont = "fira-code"
	FontIBMPlexMono   TerminalFont = "ibm-plex-mono"
	FontJetBrainsMono TerminalFont = "jetbrains-mono"
	FontSourceCodePro TerminalFont = "source-code-pro"
)

// UserOrder is an order of lists of users.
type UserOrder string

const (
	UsersByName    UserOrder = "username"
	UsersBySeen    UserOrder = "seen"    // last seen first, those who were never seen last
	UsersByCreated UserOrder = "created" // newest first
)

// TemplateOrder is an order of lists of templates.
type TemplateOrder string

const (
	TemplatesByName    TemplateOrder = "name"    // numbers in names count as numbers
	TemplatesByUsers   TemplateOrder = "users"   // most owners of workspaces first
	TemplatesByUpdated TemplateOrder = "updated" // last updated first
)

type Transition string

const (
	TransitionStart  Transition = "start"
	TransitionStop   Transition = "stop"
	TransitionDelete Transition = "delete"
)

type JobStatus string

const (
	JobPending   JobStatus = "pending"
	JobRunning   JobStatus = "running"
	JobSucceeded JobStatus = "succeeded"
	JobCanceling JobStatus = "canceling"
	JobCanceled  JobStatus = "canceled"
	JobFailed    JobStatus = "failed"
)

// Ended reports whether the job has reached its final status.
func (s JobStatus) Ended() bool { return s == JobSucceeded || s == JobCanceled || s == JobFailed }

type JobType string

const (
	JobTemplateImport JobType = "template_version_import"
	JobTemplateDryRun JobType = "template_version_dry_run"
	JobWorkspaceBuild JobType = "workspace_build"
)

// PlanAction is what a start would do with a resource.
type PlanAction string

const (
	PlanCreate  PlanAction = "create"
	PlanUpdate  PlanAction = "update"  // in place
	PlanReplace PlanAction = "replace" // it is destroyed and created anew
	PlanDelete  PlanAction = "delete"
	PlanNoOp    PlanAction = "no-op"
	PlanRead    PlanAction = "read"   // a data source, during the build
	PlanForget  PlanAction = "forget" // it continues to exist, and no longer belongs to the workspace
)

// JobErrorCode is the reason why a job failed, for failures that a program can handle.
type JobErrorCode string

const (
	JobErrorMissingVariables JobErrorCode = "REQUIRED_TEMPLATE_VARIABLES"
	// JobErrorReplaces is the code of a start or stop that would replace or delete what the workspace keeps while it is
	// stopped. It has changed nothing. The build's would_replace lists the resources.
	JobErrorReplaces JobErrorCode = "REPLACES_RESOURCES"
)

type AgentStatus string

const (
	AgentConnecting   AgentStatus = "connecting"
	AgentConnected    AgentStatus = "connected"
	AgentDisconnected AgentStatus = "disconnected"
	AgentTimeout      AgentStatus = "timeout"
)

type AgentLifecycle string

const (
	LifecycleCreated         AgentLifecycle = "created"
	LifecycleStarting        AgentLifecycle = "starting"
	LifecycleStartTimeout    AgentLifecycle = "start_timeout"
	LifecycleStartError      AgentLifecycle = "start_error"
	LifecycleReady           AgentLifecycle = "ready"
	LifecycleShuttingDown    AgentLifecycle = "shutting_down"
	LifecycleShutdownTimeout AgentLifecycle = "shutdown_timeout"
	LifecycleShutdownError   AgentLifecycle = "shutdown_error"
	LifecycleOff             AgentLifecycle = "off"
)

// Starting reports whether the startup scripts have not ended yet.
func (l AgentLifecycle) Starting() bool { return l == LifecycleCreated || l == LifecycleStarting }

// ShuttingDown reports whether the agent will not come back in this build.
func (l AgentLifecycle) ShuttingDown() bool {
	return l == LifecycleShuttingDown || l == LifecycleShutdownTimeout || l == LifecycleShutdownError ||
		l == LifecycleOff
}

// StartupBehavior decides whether sessions wait for the startup scripts.
type StartupBehavior string

const (
	StartupBlocking    StartupBehavior = "blocking"
	StartupNonBlocking StartupBehavior = "non-blocking"
)

type AppHealth string

const (
	AppDisabled     AppHealth = "disabled"
	AppInitializing AppHealth = "initializing"
	AppHealthy      AppHealth = "healthy"
	AppUnhealthy    AppHealth = "unhealthy"
)

type AppShare string

const (
	ShareOwner         AppShare = "owner"
	ShareAuthenticated AppShare = "authenticated"
	ShareOrganization  AppShare = "organization"
	SharePublic        AppShare = "public"
)

// PortShareLevels lists the levels from the most private to the most open.
var PortShareLevels = []AppShare{ShareOwner, ShareOrganization, ShareAuthenticated, SharePublic}

// Exceeds reports whether the level is more open than another. Unknown levels exceed every other.
func (a AppShare) Exceeds(ceiling AppShare) bool {
	mine, theirs := slices.Index(PortShareLevels, a), slices.Index(PortShareLevels, ceiling)
	return mine < 0 || mine > theirs
}

// Within returns the level, or the ceiling if the level exceeds it.
func (a AppShare) Within(ceiling AppShare) AppShare {
	if a.Exceeds(ceiling) {
		return ceiling
	}
	return a
}

type AppOpenIn string

const (
	OpenInSlimWindow AppOpenIn = "slim-window"
	OpenInTab        AppOpenIn = "tab"
)

type DisplayApp string

const (
	DisplayVSCode         DisplayApp = "vscode"
	DisplayVSCodeInsiders DisplayApp = "vscode_insiders"
	DisplayWebTerminal    DisplayApp = "web_terminal"
	DisplayPortForwarding DisplayApp = "port_forwarding_helper"
	DisplaySSH            DisplayApp = "ssh_helper"
)

type LogLevel string

const (
	LogTrace LogLevel = "trace"
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

type LogSource string

const (
	LogSourceDaemon      LogSource = "provisioner_daemon"
	LogSourceProvisioner LogSource = "provisioner"
)

type BuildReason string

const (
	ReasonInitiator  BuildReason = "initiator"
	ReasonAutostart  BuildReason = "autostart"
	ReasonAutostop   BuildReason = "autostop"
	ReasonDormancy   BuildReason = "dormancy"
	ReasonDashboard  BuildReason = "dashboard"
	ReasonCLI        BuildReason = "cli"
	ReasonSSH        BuildReason = "ssh_connection"
	ReasonVSCode     BuildReason = "vscode_connection"
	ReasonJetBrains  BuildReason = "jetbrains_connection"
	ReasonAutoDelete BuildReason = "autodelete"
)

type AutomaticUpdates string

const (
	UpdatesAlways AutomaticUpdates = "always"
	UpdatesNever  AutomaticUpdates = "never"
)

type UserStatus string

const (
	UserActive    UserStatus = "active"
	UserDormant   UserStatus = "dormant"
	UserSuspended UserStatus = "suspended"
)

type LoginType string

const (
	LoginPassword LoginType = "password"
	LoginToken    LoginType = "token"
	LoginNone     LoginType = "none"
	LoginOIDC     LoginType = "oidc"
	LoginGitHub   LoginType = "github"
)

// Name returns the login type as users know it.
func (t LoginType) Name() string {
	switch t {
	case LoginOIDC:
		return "OpenID Connect"
	case LoginGitHub:
		return "GitHub"
	}
	return string(t)
}

type ProvisionerStatus string

const (
	ProvisionerOffline ProvisionerStatus = "offline"
	ProvisionerIdle    ProvisionerStatus = "idle"
	ProvisionerBusy    ProvisionerStatus = "busy"
)

// Names with a special meaning in paths.
const (
	Me                  = "me"      // the caller
	DefaultOrganization = "default" // the one organization
)
