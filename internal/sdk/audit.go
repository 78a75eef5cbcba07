package sdk

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// AuditLog is one row of the audit log: who did what, when and from where.
type AuditLog struct {
	ID             uuid.UUID           `json:"id"`
	RequestID      uuid.UUID           `json:"request_id"` // zero for what was not a request
	Time           time.Time           `json:"time"`
	IP             string              `json:"ip"`
	UserAgent      string              `json:"user_agent"`
	ResourceType   string              `json:"resource_type"`
	ResourceID     uuid.UUID           `json:"resource_id"` // zero for what has no UUID
	ResourceTarget string              `json:"resource_target"`
	ResourceIcon   string              `json:"resource_icon"`
	Action         string              `json:"action"`
	Diff           Map[AuditDiffField] `json:"diff"`
	// Names are those of users, groups and other objects that Diff mentions by id, as far as they exist. The audit log
	// on standard output has none.
	Names      Map[string] `json:"names"`
	StatusCode int         `json:"status_code"`
	// AdditionalFields depend on the kind of resource.
	AdditionalFields json.RawMessage `json:"additional_fields"`
	Description      string          `json:"description"`
	ResourceLink     string          `json:"resource_link"`
	IsDeleted        bool            `json:"is_deleted"`
	OrganizationID   uuid.UUID       `json:"organization_id"`
	// Organization is null for what belongs to the deployment.
	Organization *MinimalOrganization `json:"organization"`
	// User is null if no user acted: Actor then tells who did.
	User  *User  `json:"user"`
	Actor string `json:"actor"`
}

// AuditDiffField is a field that changed. The values of a secret are empty.
type AuditDiffField struct {
	Old    any  `json:"old"`
	New    any  `json:"new"`
	Secret bool `json:"secret"`
}

// MinimalOrganization names an organization.
type MinimalOrganization struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name"`
	DisplayName string    `json:"display_name"`
	Icon        string    `json:"icon"`
}

// AuditLogsResponse is one page of the audit log, newest first. Rows are counted up to CountCap.
type AuditLogsResponse struct {
	AuditLogs List[AuditLog] `json:"audit_logs"`
	Count     int            `json:"count"`
	CountCap  int            `json:"count_cap"`
}

// LogQuery selects rows of the audit log or the connection log. The zero value means all of them.
type LogQuery struct {
	Q             string // "action:delete username:ann"
	Limit, Offset int    // 0: the server's own limit
}

// AuditLogs returns one page of the audit log.
func (c *Client) AuditLogs(ctx context.Context, query LogQuery) (AuditLogsResponse, error) {
	return get[AuditLogsResponse](ctx, c, "audit"+page(query.Q, query.Limit, query.Offset))
}

// ExportAuditLogs copies the audit log to w, as one JSON object per line, newest first. Of the query, only Q counts. It
// blocks until everything is copied or ctx ends.
func (c *Client) ExportAuditLogs(ctx context.Context, w io.Writer, query LogQuery) error {
	return c.export(ctx, w, "audit/export"+page(query.Q, 0, 0))
}

func (c *Client) export(ctx context.Context, w io.Writer, path string) error {
	resp, err := c.roundTrip(ctx, request{method: http.MethodGet, path: path}, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return c.unreachable(ctx, err)
	}
	return nil
}

// ConnectionLog is one connection to a workspace: who reached it, when and by what.
type ConnectionLog struct {
	ID                     uuid.UUID            `json:"id"`
	ConnectTime            time.Time            `json:"connect_time"`
	DisconnectTime         *time.Time           `json:"disconnect_time,omitempty"` // absent while it is open
	DisconnectReason       string               `json:"disconnect_reason,omitempty"`
	Organization           *MinimalOrganization `json:"organization"`
	WorkspaceOwnerID       uuid.UUID            `json:"workspace_owner_id"`
	WorkspaceOwnerUsername string               `json:"workspace_owner_username"`
	WorkspaceID            uuid.UUID            `json:"workspace_id"`
	WorkspaceName          string               `json:"workspace_name"`
	AgentName              string               `json:"agent_name"`
	IP                     string               `json:"ip"`
	// Type is ssh, vscode, jetbrains, reconnecting_pty, workspace_app or port_forwarding.
	Type string `json:"type"`
	// Username is that of the person who connected, "" for a visitor of a public app.
	Username   string `json:"username"`
	SlugOrPort string `json:"slug_or_port,omitempty"`
	// Path is direct, relayed, proxied (by a server) or "".
	Path     string `json:"path"`
	Region   string `json:"region,omitempty"` // the region proxy that it went through; absent for a server
	BytesIn  int64  `json:"bytes_in"`         // into the workspace
	BytesOut int64  `json:"bytes_out"`
	// Refused is how often the user tried this within a minute, in vain: DisconnectReason says why. It is absent for
	// connections.
	Refused int `json:"refused,omitempty"`
	// WebInfo is set for apps and ports that a server proxies, SSHInfo for everything else.
	WebInfo *ConnectionLogWebInfo `json:"web_info,omitempty"`
	SSHInfo *ConnectionLogSSHInfo `json:"ssh_info,omitempty"`
}

// ConnectionLogWebInfo tells about a visit of an app.
type ConnectionLogWebInfo struct {
	UserAgent  string       `json:"user_agent"`
	User       *MinimalUser `json:"user"` // null: not signed in
	SlugOrPort string       `json:"slug_or_port"`
	StatusCode int          `json:"status_code"` // of the first answer; 0 if unknown
}

// ConnectionLogSSHInfo tells about a session.
type ConnectionLogSSHInfo struct {
	ConnectionID     uuid.UUID  `json:"connection_id"`
	DisconnectTime   *time.Time `json:"disconnect_time,omitempty"`
	DisconnectReason string     `json:"disconnect_reason,omitempty"`
	ExitCode         *int       `json:"exit_code,omitempty"`
}

// ConnectionTypes are the types of the connections that a user has opened: ssh, vscode, jetbrains, reconnecting_pty,
// workspace_app or port_forwarding.
type ConnectionTypes struct {
	Types List[string] `json:"types"`
}

// ConnectionLogsResponse is one page of the connection log, newest first. Connections are counted up to CountCap.
type ConnectionLogsResponse struct {
	ConnectionLogs List[ConnectionLog] `json:"connection_logs"`
	Count          int                 `json:"count"`
	CountCap       int                 `json:"count_cap"`
}

// ConnectionLogs returns one page of the connection log.
func (c *Client) ConnectionLogs(ctx context.Context, query LogQuery) (ConnectionLogsResponse, error) {
	return get[ConnectionLogsResponse](ctx, c, "connectionlog"+page(query.Q, query.Limit, query.Offset))
}

// ExportConnectionLogs is like ExportAuditLogs for the connection log.
func (c *Client) ExportConnectionLogs(ctx context.Context, w io.Writer, query LogQuery) error {
	return c.export(ctx, w, "connectionlog/export"+page(query.Q, 0, 0))
}
