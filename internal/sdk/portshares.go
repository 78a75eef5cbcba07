package sdk

import (
	"context"
	"net/http"

	"github.com/google/uuid"
)

// PortShareProtocol is what a shared port speaks.
type PortShareProtocol string

const (
	PortHTTP  PortShareProtocol = "http"
	PortHTTPS PortShareProtocol = "https"
)

// PortShare is a port of a workspace that more users may open than those who may connect to the workspace.
type PortShare struct {
	WorkspaceID uuid.UUID         `json:"workspace_id"`
	AgentName   string            `json:"agent_name"`
	Port        int               `json:"port"`
	ShareLevel  AppShare          `json:"share_level"`
	Protocol    PortShareProtocol `json:"protocol"`
}

// PortShares lists the shared ports of a workspace.
type PortShares struct {
	Shares List[PortShare] `json:"shares"`
}

// UpsertPortShareRequest shares a port, or changes how it is shared.
type UpsertPortShareRequest struct {
	AgentName  string            `json:"agent_name"`
	Port       int               `json:"port"`
	ShareLevel AppShare          `json:"share_level"`
	Protocol   PortShareProtocol `json:"protocol"` // "": http
}

// DeletePortShareRequest names a shared port.
type DeletePortShareRequest struct {
	AgentName string `json:"agent_name"`
	Port      int    `json:"port"`
}

// PortShares lists the shared ports of a workspace.
func (c *Client) PortShares(ctx context.Context, workspace uuid.UUID) (PortShares, error) {
	return get[PortShares](ctx, c, "workspaces/"+workspace.String()+"/port-share")
}

// SharePort shares a port, or changes how it is shared.
func (c *Client) SharePort(ctx context.Context, workspace uuid.UUID, req UpsertPortShareRequest) (PortShare, error) {
	return send[PortShare](ctx, c, http.MethodPost, "workspaces/"+workspace.String()+"/port-share", req)
}

// DeletePortShare makes a port private again, and ends requests to it.
func (c *Client) DeletePortShare(ctx context.Context, workspace uuid.UUID, req DeletePortShareRequest) error {
	return c.do(ctx, http.MethodDelete, "workspaces/"+workspace.String()+"/port-share", req, nil)
}
