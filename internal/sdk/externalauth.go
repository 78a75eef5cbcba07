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
	Device        bool   `json:"device"` // always false: sign-ins happen in a browser
	DisplayName   string `json:"display_name"`
	DisplayIcon   string `json:"display_icon"`
	// ValidateError is the reason why a link does not work.
	ValidateError string `json:"validate_error"`
	// SupportsRevocation reports that the provider revokes the token when the user unlinks.
	SupportsRevocation bool `json:"supports_revocation"`
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
	Device        bool   `json:"device"`
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
