package sdk

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// EventKind is the subject of an event (GET events, server-sent events).
type EventKind string

const (
	EventReady       EventKind = "ready" // the stream is open and reports all later changes
	EventReset       EventKind = "reset" // events were lost: read everything again
	EventWorkspace   EventKind = "workspace"
	EventBuild       EventKind = "build"
	EventJob         EventKind = "job"
	EventTemplate    EventKind = "template"
	EventProvisioner EventKind = "provisioner"
	EventAgent       EventKind = "agent"
	EventUser        EventKind = "user"
	EventInbox       EventKind = "inbox" // the reader's own
)

// Event is the data of one event. It names the object that has changed, which the client reads again.
type Event struct {
	ID uuid.UUID `json:"id"`
}

// PeerKind is the kind of a participant of the mesh.
type PeerKind string

const (
	PeerServer      PeerKind = "server"
	PeerAgent       PeerKind = "agent"
	PeerProvisioner PeerKind = "provisioner"
	PeerClient      PeerKind = "client"
)

// PeerPath is how packets travel between this server's node and a peer.
type PeerPath string

const (
	PathDirect  PeerPath = "direct"
	PathRelayed PeerPath = "relayed"
	PathUnknown PeerPath = "unknown" // there was no traffic recently, or the server has no tunnel with the peer
)

// MeshPeer is a participant of the mesh.
type MeshPeer struct {
	ID            uuid.UUID  `json:"id"`
	Kind          PeerKind   `json:"kind"`
	Name          string     `json:"name"`
	Path          PeerPath   `json:"path"`
	LatencyMillis float64    `json:"latency_ms"` // 0 while unknown
	RxBytes       int64      `json:"rx_bytes"`   // received by this server from the peer in the current session
	TxBytes       int64      `json:"tx_bytes"`
	LastSeen      *time.Time `json:"last_seen"`
	Connected     bool       `json:"connected"` // to the coordinator
	// ServerID is the server that it is, or was last, connected to.
	ServerID uuid.UUID `json:"server_id"`
	// RelayServerID is the server whose relay holds its connection; nil while it is not connected to any relay.
	RelayServerID *uuid.UUID      `json:"relay_server_id"`
	Links         List[uuid.UUID] `json:"links"` // the listed peers with which it has a tunnel
	// Clients reports how the clients among Links reach an agent, if the agent answered in time.
	Clients List[MeshClient] `json:"clients"`
}

// MeshClient is a client of an agent as the agent sees it.
type MeshClient struct {
	ID            uuid.UUID `json:"id"`
	Path          PeerPath  `json:"path"`
	LatencyMillis float64   `json:"latency_ms"` // 0 while unknown
	RxBytes       int64     `json:"rx_bytes"`   // received by the agent from the client in the current session
	TxBytes       int64     `json:"tx_bytes"`
}

type MeshPeersResponse struct {
	// ServerID is the server that answered: paths, latency and bytes are as its node sees them.
	ServerID uuid.UUID      `json:"server_id"`
	Peers    List[MeshPeer] `json:"peers"`
	// ServerLinks are the links from that server to the others.
	ServerLinks List[MeshServerLink] `json:"server_links"`
}

// MeshServerLink is a link between two servers.
type MeshServerLink struct {
	ServerID      uuid.UUID `json:"server_id"` // the other one
	Connected     bool      `json:"connected"`
	LatencyMillis float64   `json:"latency_ms"` // 0 while unknown
}

// HealthSeverity is the severity of a finding.
type HealthSeverity string

const (
	HealthOK      HealthSeverity = "ok"
	HealthWarning HealthSeverity = "warning"
	HealthError   HealthSeverity = "error"
)

// HealthReport is the result of the server's checks of itself.
type HealthReport struct {
	CheckedAt time.Time           `json:"checked_at"`
	Healthy   bool                `json:"healthy"` // no section has an error, except dismissed ones
	Severity  HealthSeverity      `json:"severity"`
	Sections  List[HealthSection] `json:"sections"`
	Servers   List[ServerHealth]  `json:"servers"` // oldest first
}

// HealthSection is one part of a HealthReport. Code is stable: documentation and alerts name it.
type HealthSection struct {
	Name     string         `json:"name"`  // database, access_url, relay, websocket, provisioners, servers
	Label    string         `json:"label"` // for people
	Healthy  bool           `json:"healthy"`
	Severity HealthSeverity `json:"severity"`
	Code     string         `json:"code"` // "" if there is no finding
	Message  string         `json:"message"`
	Remedy   string         `json:"remedy"` // what to do; "" if nothing
	Details  Map[any]       `json:"details"`
	// Dismissed means that an owner has seen what the check finds: it does not count for the report.
	Dismissed bool `json:"dismissed"`
}

// ApplicationsHost is the pattern of the host names of apps, such as "*.apps.example.com"; "" if apps have none.
type ApplicationsHost struct {
	Host string `json:"host"`
}

// BuildTimings lists when the phases of a build began and ended.
type BuildTimings struct {
	Provisioner List[ProvisionerTiming] `json:"provisioner_timings"`
	Connections List[AgentTiming]       `json:"agent_connection_timings"`
	Scripts     List[ScriptTiming]      `json:"agent_script_timings"`
}

// ProvisionerTiming is the timing of a stage of a job, or of one resource in it.
type ProvisionerTiming struct {
	JobID     uuid.UUID `json:"job_id"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Stage     string    `json:"stage"`
	Source    string    `json:"source"`   // server or provisioner
	Action    string    `json:"action"`   // queue, run, create, destroy, …
	Resource  string    `json:"resource"` // the address; "" for a stage as a whole
}

// AgentTiming is how long an agent took to connect.
type AgentTiming struct {
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Stage     string    `json:"stage"` // connect
	AgentID   uuid.UUID `json:"workspace_agent_id"`
	AgentName string    `json:"workspace_agent_name"`
}

// ScriptTiming is one run of an agent's script.
type ScriptTiming struct {
	StartedAt   time.Time `json:"started_at"`
	EndedAt     time.Time `json:"ended_at"`
	ExitCode    int32     `json:"exit_code"`
	Stage       string    `json:"stage"`  // start, stop, cron
	Status      string    `json:"status"` // ok, exit_failure, timed_out
	DisplayName string    `json:"display_name"`
	AgentID     uuid.UUID `json:"workspace_agent_id"`
	AgentName   string    `json:"workspace_agent_name"`
}

// MeshPeers returns the participants of the mesh that the caller may see.
func (c *Client) MeshPeers(ctx context.Context) (MeshPeersResponse, error) {
	return get[MeshPeersResponse](ctx, c, "mesh/peers")
}

func (c *Client) Health(ctx context.Context) (HealthReport, error) {
	return get[HealthReport](ctx, c, "debug/health")
}

// PatchHealthSettings dismisses health checks and lets others count again, and returns all that are dismissed then.
func (c *Client) PatchHealthSettings(ctx context.Context, req PatchHealthSettingsRequest) (HealthSettings, error) {
	return send[HealthSettings](ctx, c, http.MethodPatch, "debug/health/settings", req)
}

func (c *Client) ApplicationsHost(ctx context.Context) (ApplicationsHost, error) {
	return get[ApplicationsHost](ctx, c, "applications/host")
}

func (c *Client) BuildTimings(ctx context.Context, build uuid.UUID) (BuildTimings, error) {
	return get[BuildTimings](ctx, c, "workspacebuilds/"+build.String()+"/timings")
}
