package sdk

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// ExternalAuth is the state of a user's link with one provider.
type ExternalAuth struct {
	Authenticated bool   `json:"authenticated"`
	Device        bool   `json:"device"` // the user enters a code at the service: see ExternalAuthDevice
	DisplayName   string `json:"display_name"`
	DisplayIcon   string `json:"display_icon"`
	// ValidateError is the reason why a link does not work.
	ValidateError string `json:"validate_error"`
	// SupportsRevocation reports that the provider revokes the token when the user unlinks.
	SupportsRevocation bool `json:"supports_revocation"`
	// AppInstallable says that the provider tells where its app, such as a GitHub App, is installed: Installations.
	// They are of the user and their organizations, at most 100. Tokens of OAuth applications have none.
	AppInstallable bool                              `json:"app_installable"`
	Installations  List[ExternalAuthAppInstallation] `json:"installations"`
	AppInstallURL  string                            `json:"app_install_url"` // where users install it; "" if the operator names no page
}

// ExternalAuthAppInstallation is an account at a service that has installed the provider's app.
type ExternalAuthAppInstallation struct {
	ID           int64            `json:"id"`
	Account      ExternalAuthUser `json:"account"`
	ConfigureURL string           `json:"configure_url"` // where the repositories are chosen that it may use
}

// ExternalAuthUser is an account at a service, of a user or an organization.
type ExternalAuthUser struct {
	ID         int64  `json:"id"`
	Login      string `json:"login"`
	AvatarURL  string `json:"avatar_url"`
	ProfileURL string `json:"profile_url"`
	Name       string `json:"name"`
}

// ExternalAuths lists the configured providers and the user's links.
type ExternalAuths struct {
	Providers List[ExternalAuthProvider] `json:"providers"`
	Links     List[ExternalAuthLink]     `json:"links"`
}

// ExternalAuthProvider is a service that the server's operator has configured.
type ExternalAuthProvider struct {
	ID            string `json:"id"`
	Type          string `json:"type"`
	Device        bool   `json:"device"` // as that of ExternalAuth
	DisplayName   string `json:"display_name"`
	DisplayIcon   string `json:"display_icon"`
	AllowRefresh  bool   `json:"allow_refresh"`
	AllowValidate bool   `json:"allow_validate"`
	// SupportsRevocation reports that the provider revokes the token when the user unlinks.
	SupportsRevocation bool `json:"supports_revocation"`
}

// ExternalAuthLink is a user's link with a provider, as the server knows it without a request to the provider.
type ExternalAuthLink struct {
	ProviderID      string    `json:"provider_id"`
	CreatedAt       time.Time `json:"created_at"`
	UpdatedAt       time.Time `json:"updated_at"`
	HasRefreshToken bool      `json:"has_refresh_token"`
	Expires         time.Time `json:"expires"` // the zero time: never
	Authenticated   bool      `json:"authenticated"`
	ValidateError   string    `json:"validate_error"`
}

// UnlinkExternalAuthResponse reports what happened to an unlinked token.
type UnlinkExternalAuthResponse struct {
	TokenRevoked bool `json:"token_revoked"` // at the service
	// TokenRevocationError is why the service did not revoke the token, though it supports that.
	TokenRevocationError string `json:"token_revocation_error,omitempty"`
}

// ExternalAuthDeviceExchange asks whether the user has entered the code at the service.
type ExternalAuthDeviceExchange struct {
	DeviceCode string `json:"device_code"` // of ExternalAuthDevice
}

// AgentExternalAuth signs the owner of an agent's workspace in at a service.
type AgentExternalAuth struct {
	AccessToken string         `json:"access_token"` // "" without a working link
	TokenExtra  map[string]any `json:"token_extra"`  // further properties of the token, which the operator has named
	Type        string         `json:"type"`         // of the provider
	URL         string         `json:"url"`          // where the owner links an account, if there is no working link
	Username    string         `json:"username"`     // for HTTP basic authentication
	Password    string         `json:"password"`     // the token
}

// AgentExternalAuth returns the login of a provider's id. The client's token is that of an agent, not a session's.
func (c *Client) AgentExternalAuth(ctx context.Context, provider string) (AgentExternalAuth, error) {
	return get[AgentExternalAuth](ctx, c, "workspaceagents/me/external-auth?id="+url.QueryEscape(provider))
}

// ExternalAuthDevice has a service issue a code that the caller enters there, on any device.
func (c *Client) ExternalAuthDevice(ctx context.Context, provider string) (ExternalAuthDevice, error) {
	return get[ExternalAuthDevice](ctx, c, "external-auth/"+url.PathEscape(provider)+"/device")
}

// ExchangeExternalAuthDevice links the caller's account if the code has been entered. Until then the error is a fault
// whose detail is authorization_pending or slow_down, and the caller asks again after the interval, for slow_down one
// longer by 5 s. Afterwards the detail is expired_token or access_denied (RFC 8628, 3.5).
func (c *Client) ExchangeExternalAuthDevice(
	ctx context.Context, provider string, req ExternalAuthDeviceExchange,
) error {
	return c.do(ctx, http.MethodPost, "external-auth/"+url.PathEscape(provider)+"/device", req, nil)
}

// ExternalAuths lists the caller's links with other services.
func (c *Client) ExternalAuths(ctx context.Context) (ExternalAuths, error) {
	return get[ExternalAuths](ctx, c, "external-auth")
}

// ExternalAuth returns the caller's link with one service.
func (c *Client) ExternalAuth(ctx context.Context, provider string) (ExternalAuth, error) {
	return get[ExternalAuth](ctx, c, "external-auth/"+url.PathEscape(provider))
}

// UnlinkExternalAuth deletes the caller's link with a service.
func (c *Client) UnlinkExternalAuth(ctx context.Context, provider string) (UnlinkExternalAuthResponse, error) {
	return send[UnlinkExternalAuthResponse](ctx, c, http.MethodDelete, "external-auth/"+url.PathEscape(provider), nil)
}
