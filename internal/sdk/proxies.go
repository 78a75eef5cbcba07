package sdk

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// Region is a place through which users reach their workspaces: the servers themselves ("primary"), or a region proxy.
type Region struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name"`
	DisplayName string    `json:"display_name"`
	IconURL     string    `json:"icon_url"`
	Healthy     bool      `json:"healthy"`
	// PathAppURL and WildcardHostname are where apps of the region are opened: at the servers, unless the proxy serves
	// apps.
	PathAppURL       string `json:"path_app_url"`
	WildcardHostname string `json:"wildcard_hostname"`
}

// Regions lists regions, the primary one first.
type Regions[T any] struct {
	Regions List[T] `json:"regions"`
}

// WorkspaceProxyReport is what other servers of this API tell of a proxy's health.
type WorkspaceProxyReport struct {
	Errors   List[string] `json:"errors"`
	Warnings List[string] `json:"warnings"`
}

// ProxyStatus is the state of a region proxy.
type ProxyStatus string

const (
	ProxyOK           ProxyStatus = "ok"
	ProxyUnreachable  ProxyStatus = "unreachable"  // it was connected, and is not now
	ProxyUnregistered ProxyStatus = "unregistered" // it has never connected
)

// WorkspaceProxyStatus is the state of a region proxy, and when it was determined.
type WorkspaceProxyStatus struct {
	Status    ProxyStatus `json:"status"`
	CheckedAt time.Time   `json:"checked_at"`
	// Report has what is wrong beyond the status. Nothing is: both lists are always empty.
	Report WorkspaceProxyReport `json:"report"`
}

// WorkspaceProxy is a region proxy as owners see it.
type WorkspaceProxy struct {
	Region
	// URL is where nodes reach the proxy's relay; "" before it first connected.
	URL         string               `json:"url"`
	DERPEnabled bool                 `json:"derp_enabled"`
	DERPOnly    bool                 `json:"derp_only"` // it does not serve apps
	Status      WorkspaceProxyStatus `json:"status"`
	Version     string               `json:"version"`
	CreatedAt   time.Time            `json:"created_at"`
	UpdatedAt   time.Time            `json:"updated_at"`
	Deleted     bool                 `json:"deleted"`
}

// CreateWorkspaceProxyRequest names a new region proxy.
type CreateWorkspaceProxyRequest struct {
	Name        string `json:"name"`
	DisplayName string `json:"display_name"`
	Icon        string `json:"icon"`
}

// PatchWorkspaceProxyRequest changes a region proxy. Empty fields stay as they are.
type PatchWorkspaceProxyRequest struct {
	Name            string `json:"name"`
	DisplayName     string `json:"display_name"`
	Icon            string `json:"icon"`
	RegenerateToken bool   `json:"regenerate_token"`
}

// WorkspaceProxyResponse is a proxy that was created or changed. Token is set if it is new, and cannot be read again.
type WorkspaceProxyResponse struct {
	Proxy WorkspaceProxy `json:"proxy"`
	Token string         `json:"proxy_token"`
}

// ProxyTokenHeader carries a region proxy's token.
const ProxyTokenHeader = "Coder-External-Proxy-Token"

// ProxyPath is the websocket of region proxies (package region).
const ProxyPath = "/api/v2/workspaceproxies/me/coordinate"

// Regions returns all regions.
func (c *Client) Regions(ctx context.Context) (Regions[Region], error) {
	return get[Regions[Region]](ctx, c, "regions")
}

// WorkspaceProxies returns all region proxies, after the primary region.
func (c *Client) WorkspaceProxies(ctx context.Context) (Regions[WorkspaceProxy], error) {
	return get[Regions[WorkspaceProxy]](ctx, c, "workspaceproxies")
}

// WorkspaceProxy returns a region proxy by its name or id.
func (c *Client) WorkspaceProxy(ctx context.Context, reference string) (WorkspaceProxy, error) {
	return get[WorkspaceProxy](ctx, c, "workspaceproxies/"+seg(reference))
}

// CreateWorkspaceProxy creates a region proxy. The response is the only place that shows its token.
func (c *Client) CreateWorkspaceProxy(
	ctx context.Context, req CreateWorkspaceProxyRequest,
) (WorkspaceProxyResponse, error) {
	return create[WorkspaceProxyResponse](ctx, c, "workspaceproxies", req)
}

// PatchWorkspaceProxy changes a region proxy.
func (c *Client) PatchWorkspaceProxy(
	ctx context.Context, reference string, req PatchWorkspaceProxyRequest,
) (WorkspaceProxyResponse, error) {
	return send[WorkspaceProxyResponse](ctx, c, http.MethodPatch, "workspaceproxies/"+seg(reference), req)
}

// DeleteWorkspaceProxy deletes a region proxy and disconnects it.
func (c *Client) DeleteWorkspaceProxy(ctx context.Context, reference string) error {
	return c.do(ctx, http.MethodDelete, "workspaceproxies/"+seg(reference), nil, nil)
}

// PostAsProxy sends a region proxy's request to a route below /api/v2/workspaceproxies/me, and decodes the answer.
// Package region has the types.
func (c *Client) PostAsProxy(ctx context.Context, route string, body, into any) error {
	return c.do(ctx, http.MethodPost, "workspaceproxies/me/"+route, body, into)
}

// AskAsProxy is PostAsProxy for a question that may be asked again: it is repeated like a GET if its answer is lost.
func (c *Client) AskAsProxy(ctx context.Context, route string, body, into any) error {
	path := "workspaceproxies/me/" + route
	return c.call(ctx, request{method: http.MethodPost, path: path, contentType: jsonType, harmless: true}, body, into)
}

// TerminalTokenParam is the query parameter with which a browser brings a signed token to a region proxy's terminal.
const TerminalTokenParam = "coder_terminal_token"

// TerminalTokenRequest asks for a token that opens a terminal at a region proxy.
type TerminalTokenRequest struct {
	// URL is the terminal's at the proxy: …/api/v2/workspaceagents/{agent}/pty, without a query.
	URL     string    `json:"url"`
	AgentID uuid.UUID `json:"agentID"`
}

// TerminalTokenResponse contains the token. It works once and for a minute, at the proxy of the URL, for pages of the
// origin that asked for it.
type TerminalTokenResponse struct {
	SignedToken string `json:"signed_token"`
}
