package sdk

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// UserLoginType says how a user signs in.
type UserLoginType struct {
	LoginType LoginType `json:"login_type"`
}

// ConvertLoginRequest asks to sign in at an identity provider from now on. The password proves who asks.
type ConvertLoginRequest struct {
	ToType   LoginType `json:"to_type"` // oidc or github
	Password string    `json:"password"`
}

// OAuthConversionResponse is the beginning of a conversion: the browser that asked continues at the provider's
// callback, with the state in the query as oidc_merge_state.
type OAuthConversionResponse struct {
	StateString string    `json:"state_string"`
	ExpiresAt   time.Time `json:"expires_at"`
	ToType      LoginType `json:"to_type"`
	UserID      uuid.UUID `json:"user_id"`
}

// RequestOneTimePasscodeRequest asks for a passcode by mail.
type RequestOneTimePasscodeRequest struct {
	Email string `json:"email"`
}

// ChangePasswordWithOneTimePasscodeRequest sets a new password with the passcode that was mailed.
type ChangePasswordWithOneTimePasscodeRequest struct {
	Email           string `json:"email"`
	Password        string `json:"password"`
	OneTimePasscode string `json:"one_time_passcode"`
}

// OIDCClaimsResponse is what the identity provider said of the user at the last sign-in.
type OIDCClaimsResponse struct {
	Claims Map[json.RawMessage] `json:"claims"`
}

// ExternalAuthDevice is a code that a user enters at a provider, on any device.
type ExternalAuthDevice struct {
	DeviceCode      string `json:"device_code"`
	UserCode        string `json:"user_code"`
	VerificationURI string `json:"verification_uri"`
	ExpiresIn       int    `json:"expires_in"` // seconds
	Interval        int    `json:"interval"`   // seconds between questions
}

// OAuth2DeviceFlowCallbackResponse ends a sign-in with a device code.
type OAuth2DeviceFlowCallbackResponse struct {
	RedirectURL string `json:"redirect_url"`
}

func (c *Client) LoginType(ctx context.Context, user string) (UserLoginType, error) {
	return get[UserLoginType](ctx, c, "users/"+seg(user)+"/login-type")
}

// ConvertLogin begins to convert an account to another way of signing in.
func (c *Client) ConvertLogin(
	ctx context.Context, user string, req ConvertLoginRequest,
) (OAuthConversionResponse, error) {
	return send[OAuthConversionResponse](ctx, c, http.MethodPost, "users/"+seg(user)+"/convert-login", req)
}

// RequestOneTimePasscode has a passcode mailed, if the address is a user's.
func (c *Client) RequestOneTimePasscode(ctx context.Context, req RequestOneTimePasscodeRequest) error {
	return c.do(ctx, http.MethodPost, "users/otp/request", req, nil)
}

func (c *Client) ChangePasswordWithOneTimePasscode(
	ctx context.Context, req ChangePasswordWithOneTimePasscodeRequest,
) error {
	return c.do(ctx, http.MethodPost, "users/otp/change-password", req, nil)
}

// OIDCClaims returns the caller's own claims.
func (c *Client) OIDCClaims(ctx context.Context) (OIDCClaimsResponse, error) {
	return get[OIDCClaimsResponse](ctx, c, "users/oidc-claims")
}
