package sdk

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// ServerHealth describes a server process of the deployment. The server that creates a HealthReport asks the others for
// Clock, Database and Links at their replica URLs.
type ServerHealth struct {
	ID uuid.UUID `json:"id"`
	// Name is the host of the replica URL, and the start of the id if several servers share the host.
	Name       string    `json:"name"`
	ReplicaURL string    `json:"replica_url"` // at which the other servers reach it
	Version    string    `json:"version"`
	Region     string    `json:"region"`
	StartedAt  time.Time `json:"started_at"`
	LastSeen   time.Time `json:"last_seen_at"` // its last heartbeat
	// Reporter is set for the server that created the report.
	Reporter bool `json:"reporter"`
	Answered bool `json:"answered"` // the reporter's question
	// LatencyMillis is how long the server took to answer the reporter.
	LatencyMillis float64 `json:"latency_ms"`
	// ClockMillis is by how much its clock is ahead of the database's; 0 if the measurement is not precise enough to
	// tell.
	ClockMillis           float64             `json:"clock_difference_ms"`
	DatabaseLatencyMillis float64             `json:"database_latency_ms"`
	Links                 List[ServerLink]    `json:"links"`
	Findings              List[ServerFinding] `json:"findings"`
	// Stopping is set once the server was told to stop. It serves until its work has ended.
	Stopping bool `json:"stopping"`
	// Awaits are the jobs for which a stopping server waits. They are current, also if the rest of the report is older.
	Awaits List[AwaitedJob] `json:"awaits"`
}

// AwaitedJob is a job that runs on a built-in provisioner of a server that is stopping.
type AwaitedJob struct {
	ID            uuid.UUID `json:"id"`
	Type          JobType   `json:"type"`
	InterruptedAt time.Time `json:"interrupted_at"` // if it has not ended by then
	Provisioner   string    `json:"provisioner"`    // its name
	Initiator     string    `json:"initiator"`      // username
	// The rest is "" or 0 if the job is not a workspace's build, Template also if it is that of no template.
	Owner       string     `json:"owner"` // username
	Workspace   string     `json:"workspace"`
	BuildNumber int        `json:"build_number"`
	Transition  Transition `json:"transition"`
	Template    string     `json:"template"`
}

// ServerLink is what a server knows about its link to another one, and about that server's relay.
type ServerLink struct {
	Server    uuid.UUID  `json:"server_id"` // the other one
	Connected bool       `json:"connected"`
	Since     *time.Time `json:"since"`
	// LatencyMillis is the round trip on the link; 0 while unknown.
	LatencyMillis    float64 `json:"latency_ms"`
	MessagesSent     uint64  `json:"messages_sent"`
	MessagesReceived uint64  `json:"messages_received"`
	Error            string  `json:"error"` // why there is no link, if this server dials it
	// RelayConnected reports whether this server's relay forwards packets to the other's.
	RelayConnected bool   `json:"relay_connected"`
	RelayNodes     int    `json:"relay_nodes"` // connected to the other's relay
	RelayError     string `json:"relay_error"`
}

// ServerFinding is something that an operator should correct. Code is stable.
type ServerFinding struct {
	Code     string         `json:"code"`
	Severity HealthSeverity `json:"severity"`
	Message  string         `json:"message"`
	Remedy   string         `json:"remedy"`
}

// Replica is a running server, as other programs know it.
type Replica struct {
	ID              uuid.UUID `json:"id"`
	Hostname        string    `json:"hostname"` // of the replica URL
	CreatedAt       time.Time `json:"created_at"`
	RelayAddress    string    `json:"relay_address"` // the replica URL
	RegionID        int32     `json:"region_id"`
	Error           string    `json:"error"`            // the worst finding; "" if there is none
	DatabaseLatency int32     `json:"database_latency"` // in milliseconds
}

// Replicas returns the running servers.
func (c *Client) Replicas(ctx context.Context) (List[Replica], error) {
	return get[List[Replica]](ctx, c, "replicas")
}
