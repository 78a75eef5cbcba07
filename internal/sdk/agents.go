package sdk

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// WorkspaceAgent is the program that runs inside a workspace.
type WorkspaceAgent struct {
	ID                       uuid.UUID            `json:"id"`        // also its mesh id
	ParentID                 *uuid.UUID           `json:"parent_id"` // the agent that starts the dev container that this one runs in
	CreatedAt                time.Time            `json:"created_at"`
	UpdatedAt                time.Time            `json:"updated_at"`
	FirstConnectedAt         *time.Time           `json:"first_connected_at,omitempty"`
	LastConnectedAt          *time.Time           `json:"last_connected_at,omitempty"`
	DisconnectedAt           *time.Time           `json:"disconnected_at,omitempty"`
	StartedAt                *time.Time           `json:"started_at,omitempty"`
	ReadyAt                  *time.Time           `json:"ready_at,omitempty"`
	Status                   AgentStatus          `json:"status"`
	LifecycleState           AgentLifecycle       `json:"lifecycle_state"`
	Name                     string               `json:"name"`
	ResourceID               uuid.UUID            `json:"resource_id"`
	InstanceID               string               `json:"instance_id,omitempty"`
	Architecture             string               `json:"architecture"`
	OperatingSystem          string               `json:"operating_system"`
	EnvironmentVariables     Map[string]          `json:"environment_variables"`
	LogsLength               int64                `json:"logs_length"`
	LogsOverflowed           bool                 `json:"logs_overflowed"`
	Directory                string               `json:"directory,omitempty"`
	ExpandedDirectory        string               `json:"expanded_directory,omitempty"`
	Version                  string               `json:"version"`
	APIVersion               string               `json:"api_version"`
	Apps                     List[WorkspaceApp]   `json:"apps"`
	Latency                  Map[RelayLatency]    `json:"latency,omitempty"` // by relay region
	ConnectionTimeoutSeconds int32                `json:"connection_timeout_seconds"`
	TroubleshootingURL       string               `json:"troubleshooting_url"`
	Subsystems               List[string]         `json:"subsystems"`
	Health                   AgentHealth          `json:"health"`
	DisplayApps              List[DisplayApp]     `json:"display_apps"`
	LogSources               List[AgentLogSource] `json:"log_sources"`
	Scripts                  List[AgentScript]    `json:"scripts"`
	StartupScriptBehavior    StartupBehavior      `json:"startup_script_behavior"`
	Connections              *AgentConnections    `json:"connections,omitempty"` // nil until the agent has reported them
	External                 bool                 `json:"external"`              // a user starts it by hand: see ExternalAgentCredentials
	Monitors                 List[AgentMonitor]   `json:"monitors"`
}

// BlocksLogin reports whether logins wait for start scripts: for all of them if the agent says so, else for those that
// say so themselves.
func (a WorkspaceAgent) BlocksLogin() bool {
	return a.LifecycleState.Starting() && (a.StartupScriptBehavior == StartupBlocking ||
		slices.ContainsFunc(a.Scripts,
			func(s AgentScript) bool { return s.RunOnStart && s.StartBlocksLogin && s.EndedAt == nil }))
}

// Over returns the agent's monitors that have passed their thresholds. An agent that is not connected has none.
func (a WorkspaceAgent) Over() (over []AgentMonitor) {
	for _, m := range a.Monitors {
		if m.Over && a.Status == AgentConnected {
			over = append(over, m)
		}
	}
	return over
}

// AgentMonitor is a resource that the agent watches, because its template asks for that.
type AgentMonitor struct {
	Resource  MonitorResource `json:"resource"`
	Path      string          `json:"path,omitempty"` // of the volume
	Threshold int32           `json:"threshold"`      // percent
	Over      bool            `json:"over"`           // the threshold was passed
	Percent   int32           `json:"percent"`        // in use when Over changed; 0 before
	ChangedAt *time.Time      `json:"changed_at,omitempty"`
}

// MonitorResource is what a monitor watches.
type MonitorResource string

// Kinds of monitored resources.
const (
	MonitorMemory MonitorResource = "memory"
	MonitorVolume MonitorResource = "volume"
)

// Text says how full the resource is.
func (m AgentMonitor) Text() string {
	if m.Resource == MonitorMemory {
		return fmt.Sprintf("memory is %d%% full (threshold %d%%)", m.Percent, m.Threshold)
	}
	return fmt.Sprintf("volume %s is %d%% full (threshold %d%%)", m.Path, m.Percent, m.Threshold)
}

// ResourceExternalAgent is the type of resources whose agents are external: users start them by hand.
const ResourceExternalAgent = "coder_external_agent"

// ExternalAgentCredentials tell how to start an external agent on its machine.
type ExternalAgentCredentials struct {
	Command    string `json:"command"` // for a shell there; contains the token
	AgentToken string `json:"agent_token"`
}

// ExternalAgentCredentials returns how to start an external agent of a running workspace, named by its name or id. Only
// the workspace's owner may know. The token changes with each build.
func (c *Client) ExternalAgentCredentials(
	ctx context.Context, workspace uuid.UUID, agent string,
) (ExternalAgentCredentials, error) {
	return get[ExternalAgentCredentials](ctx, c,
		"workspaces/"+workspace.String()+"/external-agent/"+url.PathEscape(agent)+"/credentials")
}

// AWSInstanceIdentity is what a machine of AWS shows in the place of its agent's token.
type AWSInstanceIdentity struct {
	Document  string `json:"document"`  // the instance identity document, unchanged
	Signature string `json:"signature"` // of the document, in base64
}

// AzureInstanceIdentity is what a machine of Azure shows in the place of its agent's token.
type AzureInstanceIdentity struct {
	Signature string `json:"signature"` // attested data, in base64
	Encoding  string `json:"encoding"`  // of the data: pkcs7
}

// GoogleInstanceIdentity is what a machine of Google Cloud shows in the place of its agent's token.
type GoogleInstanceIdentity struct {
	JSONWebToken string `json:"json_web_token"` // for the server's URL, with format=full
}

// AgentSession has the token of an agent whose machine has proven who it is. It is valid as an agent's own is.
type AgentSession struct {
	SessionToken string `json:"session_token"`
}

// AdmitInstance gets an agent's token for a machine of a cloud. auth is the coder_agent's attribute, and proof one of the
// types above.
func (c *Client) AdmitInstance(ctx context.Context, auth string, proof any) (AgentSession, error) {
	return send[AgentSession](ctx, c, http.MethodPost, "workspaceagents/"+auth, proof)
}

// AgentConnections counts the current connections to a workspace, and what all its connections have carried.
type AgentConnections struct {
	SSH             uint32 `json:"ssh"`
	VSCode          uint32 `json:"vscode"`
	JetBrains       uint32 `json:"jetbrains"`
	ReconnectingPTY uint32 `json:"reconnecting_pty"`
	PortForward     uint32 `json:"port_forward"`
	RxBytes         uint64 `json:"rx_bytes"` // into the workspace since its agent's process began
	TxBytes         uint64 `json:"tx_bytes"`
}

// Any returns the total number of connections.
func (c AgentConnections) Any() uint32 {
	return c.SSH + c.VSCode + c.JetBrains + c.ReconnectingPTY + c.PortForward
}

type RelayLatency struct {
	Preferred     bool    `json:"preferred"`
	LatencyMillis float64 `json:"latency_ms"`
}

type AgentHealth struct {
	Healthy bool   `json:"healthy"`
	Reason  string `json:"reason,omitempty"` // "" if healthy
	Remedy  string `json:"remedy,omitempty"` // what to do; "" if there is nothing to do, or Reason says it
}

// String returns the diagnosis in one line.
func (h AgentHealth) String() string {
	if h.Remedy == "" {
		return h.Reason
	}
	return h.Reason + ". " + h.Remedy
}

type WorkspaceApp struct {
	ID            uuid.UUID       `json:"id"`
	URL           string          `json:"url,omitempty"`
	External      bool            `json:"external"`
	Slug          string          `json:"slug"`
	DisplayName   string          `json:"display_name,omitempty"`
	Command       string          `json:"command,omitempty"`
	Icon          string          `json:"icon,omitempty"`
	Subdomain     bool            `json:"subdomain"`
	SubdomainName string          `json:"subdomain_name,omitempty"`
	SharingLevel  AppShare        `json:"sharing_level"`
	Healthcheck   AppHealthcheck  `json:"healthcheck"`
	Health        AppHealth       `json:"health"`
	Group         string          `json:"group,omitempty"`
	Hidden        bool            `json:"hidden"`
	OpenIn        AppOpenIn       `json:"open_in"`
	Tooltip       string          `json:"tooltip,omitempty"`
	Statuses      List[AppStatus] `json:"statuses"`
}

type AppHealthcheck struct {
	URL       string `json:"url"`
	Interval  int32  `json:"interval"` // seconds
	Threshold int32  `json:"threshold"`
}

// AppStatus is what an app reports about its work.
type AppStatus struct {
	ID          uuid.UUID `json:"id"`
	CreatedAt   time.Time `json:"created_at"`
	WorkspaceID uuid.UUID `json:"workspace_id"`
	AgentID     uuid.UUID `json:"agent_id"`
	AppID       uuid.UUID `json:"app_id"`
	State       string    `json:"state"` // working, idle, complete, failure
	Message     string    `json:"message"`
	URI         string    `json:"uri"`
}

type AgentScript struct {
	ID               uuid.UUID     `json:"id"`
	LogSourceID      uuid.UUID     `json:"log_source_id"`
	LogPath          string        `json:"log_path"`
	DisplayName      string        `json:"display_name"`
	Script           string        `json:"script"`
	Cron             string        `json:"cron"`
	RunOnStart       bool          `json:"run_on_start"`
	RunOnStop        bool          `json:"run_on_stop"`
	StartBlocksLogin bool          `json:"start_blocks_login"`
	Timeout          time.Duration `json:"timeout"`  // nanoseconds
	EndedAt          *time.Time    `json:"ended_at"` // of the last run that this build's agent reported; nil: none
}

type AgentLogSource struct {
	WorkspaceAgentID uuid.UUID `json:"workspace_agent_id"`
	ID               uuid.UUID `json:"id"`
	CreatedAt        time.Time `json:"created_at"`
	DisplayName      string    `json:"display_name"`
	Icon             string    `json:"icon"`
}

// PostLogSourceRequest names a source of lines that a program adds to an agent's log.
type PostLogSourceRequest struct {
	ID          uuid.UUID `json:"id"`           // the program's own; different agents may have the same
	DisplayName string    `json:"display_name"` // at most 64 bytes
	Icon        string    `json:"icon"`         // a path or an address, at most 256 bytes; "" means none
}

// PatchAgentLogsRequest adds lines to an agent's log.
type PatchAgentLogsRequest struct {
	// LogSourceID is the id in PostLogSourceRequest. Sources without a name share one.
	LogSourceID uuid.UUID     `json:"log_source_id"`
	Logs        []NewAgentLog `json:"logs"`
}

// NewAgentLog is a line that a program adds.
type NewAgentLog struct {
	CreatedAt time.Time `json:"created_at,omitzero"` // zero means now
	Output    string    `json:"output"`
	Level     LogLevel  `json:"level"`
}

// AgentLog is one line that a script of the agent printed, or a program has added.
type AgentLog struct {
	ID        int64     `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	Output    string    `json:"output"`
	Level     LogLevel  `json:"level"`
	SourceID  uuid.UUID `json:"source_id"`
}

// AgentConnection tells a client how to reach agents.
type AgentConnection struct {
	DisableDirectConnections bool   `json:"disable_direct_connections"`
	HostnameSuffix           string `json:"hostname_suffix,omitempty"`
	// Server is the server that answers, and UnreachableServer the one that the agent is connected to, if there is no
	// link between the two.
	Server            uuid.UUID `json:"server,omitzero"`
	UnreachableServer uuid.UUID `json:"unreachable_server,omitzero"`
}

type ListeningPorts struct {
	Ports List[ListeningPort] `json:"ports"`
}

type ListeningPort struct {
	ProcessName string `json:"process_name"`
	Network     string `json:"network"` // tcp
	Port        uint16 `json:"port"`
}

// AgentMetadata is one value that the agent updates regularly for the dashboard.
type AgentMetadata struct {
	Result      AgentMetadataResult      `json:"result"`
	Description AgentMetadataDescription `json:"description"`
}

type AgentMetadataResult struct {
	CollectedAt time.Time `json:"collected_at"`
	Age         int64     `json:"age"` // seconds
	Value       string    `json:"value"`
	Error       string    `json:"error"`
}

type AgentMetadataDescription struct {
	DisplayName string `json:"display_name"`
	Key         string `json:"key"`
	Script      string `json:"script"`
	Interval    int64  `json:"interval"` // seconds
	Timeout     int64  `json:"timeout"`  // seconds
}

func (c *Client) Agent(ctx context.Context, id uuid.UUID) (WorkspaceAgent, error) {
	return get[WorkspaceAgent](ctx, c, "workspaceagents/"+id.String())
}

func (c *Client) AgentConnection(ctx context.Context, id uuid.UUID) (AgentConnection, error) {
	return get[AgentConnection](ctx, c, "workspaceagents/"+id.String()+"/connection")
}

// AgentLogs returns the agent's log lines with ids above after.
func (c *Client) AgentLogs(ctx context.Context, id uuid.UUID, after int64) ([]AgentLog, error) {
	return get[[]AgentLog](ctx, c, "workspaceagents/"+id.String()+"/logs?after="+strconv.FormatInt(after, 10))
}

// AgentContainers lists the dev containers that an agent starts, and their containers. Agents do not report other
// containers.
type AgentContainers struct {
	Containers    List[AgentContainer]    `json:"containers"`
	Devcontainers List[AgentDevcontainer] `json:"devcontainers"`
	Warnings      List[string]            `json:"warnings"`
}

// AgentContainer is the container of a dev container.
type AgentContainer struct {
	ID                 string             `json:"id"` // Docker's
	CreatedAt          time.Time          `json:"created_at"`
	FriendlyName       string             `json:"name"`
	Image              string             `json:"image"`
	Labels             Map[string]        `json:"labels"`
	Running            bool               `json:"running"`
	Ports              List[any]          `json:"ports"`
	Status             string             `json:"status"`
	Volumes            Map[string]        `json:"volumes"`
	DevcontainerStatus DevcontainerStatus `json:"devcontainer_status"`
}

// DevcontainerStatus is what a dev container does.
type DevcontainerStatus string

// Dev containers have one of these statuses.
const (
	DevcontainerStarting DevcontainerStatus = "starting"
	DevcontainerRunning  DevcontainerStatus = "running"
	DevcontainerStopped  DevcontainerStatus = "stopped"
	DevcontainerError    DevcontainerStatus = "error"
)

// AgentDevcontainer is a dev container that a template declares with coder_devcontainer.
type AgentDevcontainer struct {
	ID              uuid.UUID               `json:"id"`
	Name            string                  `json:"name"`
	WorkspaceFolder string                  `json:"workspace_folder"`
	ConfigPath      string                  `json:"config_path,omitempty"`
	SubagentID      uuid.UUID               `json:"subagent_id"`
	Status          DevcontainerStatus      `json:"status"`
	Dirty           bool                    `json:"dirty"`
	Container       *AgentContainer         `json:"container,omitempty"` // nil while there is none
	Agent           *AgentDevcontainerAgent `json:"agent,omitempty"`     // nil unless it may run
	Error           string                  `json:"error,omitempty"`
}

// AgentDevcontainerAgent is the agent in a dev container.
type AgentDevcontainerAgent struct {
	ID        uuid.UUID `json:"id"`
	Name      string    `json:"name"`
	Directory string    `json:"directory"`
}
