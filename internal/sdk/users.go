package sdk

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// User is an account.
type User struct {
	ID              uuid.UUID       `json:"id"`
	Username        string          `json:"username"`
	Name            string          `json:"name"`
	Email           string          `json:"email"`
	AvatarURL       string          `json:"avatar_url"`
	CreatedAt       time.Time       `json:"created_at"`
	UpdatedAt       time.Time       `json:"updated_at"`
	LastSeenAt      *time.Time      `json:"last_seen_at,omitempty"`
	Status          UserStatus      `json:"status"`
	LoginType       LoginType       `json:"login_type"`
	ThemePreference string          `json:"theme_preference"`
	OrganizationIDs List[uuid.UUID] `json:"organization_ids"`
	Roles           List[Role]      `json:"roles"`
	// IsServiceAccount is set for accounts of programs, which act with tokens and have no email address.
	IsServiceAccount bool `json:"is_service_account"`
	HasAISeat        bool `json:"has_ai_seat"` // always false: there are no seats
}

// Role is a role's name as shown beside a user.
type Role struct {
	Name           string `json:"name"`
	DisplayName    string `json:"display_name"`
	OrganizationID string `json:"organization_id,omitempty"`
}

// MinimalUser contains what everyone may know about a user.
type MinimalUser struct {
	ID        uuid.UUID `json:"id"`
	Username  string    `json:"username"`
	Name      string    `json:"name,omitempty"`
	AvatarURL string    `json:"avatar_url,omitempty"`
}

// UsersResponse is one page of users, and the total number.
type UsersResponse struct {
	Users List[User] `json:"users"`
	Count int        `json:"count"`
}

// UsersQuery selects users. The zero value means all of them.
type UsersQuery struct {
	Q             string // "status:active name:x"
	Limit, Offset int    // 0: the server's own limit
	// Sort is the order. Empty means by username.
	Sort UserOrder
}

// CreateFirstUserRequest creates the first user, who is an owner. It is the only request that needs no session.
type CreateFirstUserRequest struct {
	Email    string `json:"email"`
	Username string `json:"username"`
	Name     string `json:"name"`
	Password string `json:"password"`
	Trial    bool   `json:"trial"` // accepted and without effect: every feature is free
	// SetupCode is what the server prints when it starts without users.
	SetupCode string `json:"setup_code"`
}

type CreateFirstUserResponse struct {
	UserID         uuid.UUID `json:"user_id"`
	OrganizationID uuid.UUID `json:"organization_id"`
}

type CreateUserRequest struct {
	Email      string      `json:"email"`
	Username   string      `json:"username"`
	Name       string      `json:"name"`
	Password   string      `json:"password,omitempty"`
	LoginType  LoginType   `json:"login_type,omitempty"` // "": password
	UserStatus *UserStatus `json:"user_status,omitempty"`
	// OrganizationIDs are the organizations that the user joins; none: the default one.
	OrganizationIDs []uuid.UUID `json:"organization_ids,omitempty"`
	// ServiceAccount creates an account of a program, without email address, password and sign-in.
	ServiceAccount bool `json:"service_account,omitempty"`
}

type LoginRequest struct {
	Email    string `json:"email"`
	Password string `json:"password"`
}

type LoginResponse struct {
	SessionToken string `json:"session_token"`
}

// CreateLoginCodeRequest asks for a code with which a program of the user's signs in. CodeChallenge is the unpadded
// base64url of the SHA-256 hash of a secret of the program's (RFC 7636, method S256).
type CreateLoginCodeRequest struct {
	CodeChallenge string `json:"code_challenge"`
}

// CreateLoginCodeResponse has a code that is valid for a minute.
type CreateLoginCodeResponse struct {
	Code string `json:"code"`
}

// LoginWithCodeRequest signs a program in.
type LoginWithCodeRequest struct {
	Code         string `json:"code"`
	CodeVerifier string `json:"code_verifier"` // the program's secret
}

// LoginDeviceRequest asks for a code with which a user signs a program in.
type LoginDeviceRequest struct {
	Host string `json:"host"` // the machine, as the program calls it
}

// LoginDevice is a code that a user enters on a page of the dashboard, and what the program gets its session with.
type LoginDevice struct {
	DeviceCode      string `json:"device_code"` // secret
	UserCode        string `json:"user_code"`
	VerificationURI string `json:"verification_uri"`
	ExpiresIn       int    `json:"expires_in"` // seconds
	Interval        int    `json:"interval"`   // seconds between questions
}

// LoginDeviceTokenRequest asks whether the user has entered the code.
type LoginDeviceTokenRequest struct {
	DeviceCode string `json:"device_code"`
}

// WaitingProgram is a program that waits for a user to sign it in.
type WaitingProgram struct {
	UserCode string `json:"user_code"`
	Host     string `json:"host"`    // as the program calls its machine: it may be a lie
	Program  string `json:"program"` // likewise
	Address  string `json:"address"` // from which it asked
	// SameAddress means that the caller has this address too.
	SameAddress    bool      `json:"same_address"`
	CreatedAt      time.Time `json:"created_at"`
	ExpiresAt      time.Time `json:"expires_at"`
	SessionSeconds int       `json:"session_seconds"` // how long its session lives without use
}

// AnswerWaitingProgramRequest answers a program that waits.
type AnswerWaitingProgramRequest struct {
	Approve bool `json:"approve"`
}

// AuthMethods lists the ways to sign in.
type AuthMethods struct {
	TermsOfServiceURL string           `json:"terms_of_service_url,omitempty"`
	Password          AuthMethod       `json:"password"`
	Github            GitHubAuthMethod `json:"github"`
	OIDC              OIDCAuthMethod   `json:"oidc"`
}

type AuthMethod struct {
	Enabled bool `json:"enabled"`
}

type GitHubAuthMethod struct {
	Enabled bool `json:"enabled"`
	// DefaultProviderConfigured is always false: an operator configures an OAuth application of their own.
	DefaultProviderConfigured bool `json:"default_provider_configured"`
}

type OIDCAuthMethod struct {
	Enabled    bool   `json:"enabled"`
	SignInText string `json:"signInText"`
	IconURL    string `json:"iconUrl"`
}

type UpdateUserProfileRequest struct {
	Username string `json:"username"`
	Name     string `json:"name"`
}

// UpdateUserPasswordRequest changes a password. Users must give their old one; an owner need not give another user's.
type UpdateUserPasswordRequest struct {
	OldPassword string `json:"old_password"`
	Password    string `json:"password"`
	// EndTokens also ends the user's API tokens, SSH keys and devices. A new password always ends all sessions except
	// the caller's.
	EndTokens bool `json:"end_tokens,omitempty"`
}

// UpdateRolesRequest replaces a user's roles.
type UpdateRolesRequest struct {
	Roles List[string] `json:"roles"`
}

type UserRoles struct {
	Roles             List[string]      `json:"roles"`
	OrganizationRoles Map[List[string]] `json:"organization_roles"`
}

// APIKey is a session or a token without its secret.
type APIKey struct {
	ID              string       `json:"id"` // the public half of the token, 10 characters
	UserID          uuid.UUID    `json:"user_id"`
	Username        string       `json:"username,omitempty"` // only in lists of tokens
	LastUsed        time.Time    `json:"last_used"`
	ExpiresAt       time.Time    `json:"expires_at"`
	CreatedAt       time.Time    `json:"created_at"`
	UpdatedAt       time.Time    `json:"updated_at"`
	LoginType       LoginType    `json:"login_type"`
	Scope           string       `json:"scope"`      // "all", "application_connect", or "" for other scopes
	Scopes          List[string] `json:"scopes"`     // "all", or those of ScopeCatalog
	AllowList       List[string] `json:"allow_list"` // "*:*", or "workspace:<id>" and the like
	TokenName       string       `json:"token_name"`
	LifetimeSeconds int64        `json:"lifetime_seconds"`
}

// UserSession is one place where a user is signed in.
type UserSession struct {
	ID string `json:"id"` // the public half of its token, 10 characters
	// Device describes the program that used it last, such as "Firefox on Linux", by what the program says. Empty if
	// that is not known.
	Device     string    `json:"device"`
	UserAgent  string    `json:"user_agent"`
	Address    string    `json:"address"` // from where it was used last
	CreatedAt  time.Time `json:"created_at"`
	LastUsedAt time.Time `json:"last_used_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	Current    bool      `json:"current"` // the request carried it
}

// CreateTokenRequest asks for a token. Without scopes and an allow-list it may do all that its user may do.
type CreateTokenRequest struct {
	Lifetime  time.Duration `json:"lifetime,omitempty"`   // nanoseconds; 0: the server's default
	Scope     string        `json:"scope,omitempty"`      // "", "all" or "application_connect": what Scopes was before
	Scopes    []string      `json:"scopes,omitempty"`     // of ScopeCatalog
	AllowList []string      `json:"allow_list,omitempty"` // such as "workspace:<id>"; none: every object
	TokenName string        `json:"token_name,omitempty"`
}

// CreateTokenResponse shows the whole token, once.
type CreateTokenResponse struct {
	Key string `json:"key"`
}

// ScopeCatalog lists the scopes that a token can have.
type ScopeCatalog struct {
	External List[string] `json:"external"`
}

type TokenConfig struct {
	MaxTokenLifetime     time.Duration `json:"max_token_lifetime"`     // nanoseconds
	DefaultTokenLifetime time.Duration `json:"default_token_lifetime"` // nanoseconds; of a token that is created without one
}

type GitSSHKey struct {
	UserID    uuid.UUID `json:"user_id"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	PublicKey string    `json:"public_key"`
}

// HasFirstUser reports whether the deployment has been set up.
func (c *Client) HasFirstUser(ctx context.Context) (bool, error) {
	err := c.do(ctx, http.MethodGet, "users/first", nil, nil)
	if isNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (c *Client) CreateFirstUser(ctx context.Context, req CreateFirstUserRequest) (CreateFirstUserResponse, error) {
	return send[CreateFirstUserResponse](ctx, c, http.MethodPost, "users/first", req)
}

func (c *Client) Login(ctx context.Context, req LoginRequest) (LoginResponse, error) {
	return send[LoginResponse](ctx, c, http.MethodPost, "users/login", req)
}

// Logout ends the session that the client uses.
func (c *Client) Logout(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "users/logout", nil, nil)
}

func (c *Client) AuthMethods(ctx context.Context) (AuthMethods, error) {
	return get[AuthMethods](ctx, c, "users/authmethods")
}

// User returns the user with the given name or id; Me means the caller.
func (c *Client) User(ctx context.Context, user string) (User, error) {
	return get[User](ctx, c, "users/"+seg(user))
}

func (c *Client) Users(ctx context.Context, q UsersQuery) (UsersResponse, error) {
	path := "users" + cmp.Or(page(q.Q, q.Limit, q.Offset), "?")
	if q.Sort != "" {
		path += "&sort=" + url.QueryEscape(string(q.Sort))
	}
	return get[UsersResponse](ctx, c, path)
}

// ExportUsers copies the users that a query finds to w, as CSV. Of the query, Limit and Offset do not count. It blocks
// until everything is copied or ctx ends.
func (c *Client) ExportUsers(ctx context.Context, w io.Writer, q UsersQuery) error {
	path := "users/export" + cmp.Or(page(q.Q, 0, 0), "?")
	if q.Sort != "" {
		path += "&sort=" + url.QueryEscape(string(q.Sort))
	}
	return c.export(ctx, w, path)
}

func (c *Client) CreateUser(ctx context.Context, req CreateUserRequest) (User, error) {
	return create[User](ctx, c, "users", req)
}

func (c *Client) DeleteUser(ctx context.Context, user string) error {
	return c.do(ctx, http.MethodDelete, "users/"+seg(user), nil, nil)
}

func (c *Client) SuspendUser(ctx context.Context, user string) (User, error) {
	return send[User](ctx, c, http.MethodPut, "users/"+seg(user)+"/status/suspend", nil)
}

func (c *Client) ActivateUser(ctx context.Context, user string) (User, error) {
	return send[User](ctx, c, http.MethodPut, "users/"+seg(user)+"/status/activate", nil)
}

func (c *Client) UserRoles(ctx context.Context, user string) (UserRoles, error) {
	return get[UserRoles](ctx, c, "users/"+seg(user)+"/roles")
}

func (c *Client) UpdateUserRoles(ctx context.Context, user string, req UpdateRolesRequest) (User, error) {
	return send[User](ctx, c, http.MethodPut, "users/"+seg(user)+"/roles", req)
}

func (c *Client) UpdateUserProfile(ctx context.Context, user string, req UpdateUserProfileRequest) (User, error) {
	return send[User](ctx, c, http.MethodPut, "users/"+seg(user)+"/profile", req)
}

func (c *Client) UpdateUserPassword(ctx context.Context, user string, req UpdateUserPasswordRequest) error {
	return c.do(ctx, http.MethodPut, "users/"+seg(user)+"/password", req, nil)
}

// Tokens lists a user's long-lived tokens; with all, those of every user (owners only), and with expired also those
// that have ended.
func (c *Client) Tokens(ctx context.Context, user string, all, expired bool) ([]APIKey, error) {
	path := "users/" + seg(user) + "/keys/tokens?include_all=" + strconv.FormatBool(all) +
		"&include_expired=" + strconv.FormatBool(expired) + "&"
	return wholeList(ctx, c, path, func(k APIKey) string { return k.ID })
}

// Sessions lists a user's sessions, the last used first.
func (c *Client) Sessions(ctx context.Context, user string) ([]UserSession, error) {
	return wholeList(ctx, c, "users/"+seg(user)+"/sessions?", func(s UserSession) string { return s.ID })
}

// wholeList reads all pages of the list at path, which ends where a parameter can follow. An entry that moves from one
// page to the next meanwhile is in the result once. A server that knows no pages repeats its first one, which ends the
// list. It blocks for one answer per 1000 entries.
func wholeList[T any](ctx context.Context, c *Client, path string, id func(T) string) ([]T, error) {
	const most = 1000 // entries of one answer
	all, known := []T{}, map[string]bool{}
	for offset := 0; ; offset += most {
		page, err := get[[]T](ctx, c, path+"limit="+strconv.Itoa(most)+"&offset="+strconv.Itoa(offset))
		if err != nil {
			return nil, err
		}
		before := len(all)
		for _, entry := range page {
			if !known[id(entry)] {
				known[id(entry)], all = true, append(all, entry)
			}
		}
		if len(page) < most || len(all) == before {
			return all, nil
		}
	}
}

// EndSession signs a user out of one session.
func (c *Client) EndSession(ctx context.Context, user, id string) error {
	return c.do(ctx, http.MethodDelete, "users/"+seg(user)+"/sessions/"+seg(id), nil, nil)
}

// EndSessions signs a user out everywhere or, with others, everywhere but in the client's own session.
func (c *Client) EndSessions(ctx context.Context, user string, others bool) error {
	path := "users/" + seg(user) + "/sessions?except_current=" + strconv.FormatBool(others)
	return c.do(ctx, http.MethodDelete, path, nil, nil)
}

func (c *Client) CreateToken(ctx context.Context, user string, req CreateTokenRequest) (CreateTokenResponse, error) {
	return create[CreateTokenResponse](ctx, c, "users/"+seg(user)+"/keys/tokens", req)
}

// Scopes lists the scopes that a token can have.
func (c *Client) Scopes(ctx context.Context) (ScopeCatalog, error) {
	return get[ScopeCatalog](ctx, c, "auth/scopes")
}

func (c *Client) TokenConfig(ctx context.Context, user string) (TokenConfig, error) {
	return get[TokenConfig](ctx, c, "users/"+seg(user)+"/keys/tokens/tokenconfig")
}

// CreateLoginCode returns a code with which a program of the client's user signs in.
func (c *Client) CreateLoginCode(ctx context.Context, req CreateLoginCodeRequest) (CreateLoginCodeResponse, error) {
	return send[CreateLoginCodeResponse](ctx, c, http.MethodPost, "users/me/keys/codes", req)
}

// LoginWithCode returns a session for a code. It needs none itself.
func (c *Client) LoginWithCode(ctx context.Context, req LoginWithCodeRequest) (LoginResponse, error) {
	return send[LoginResponse](ctx, c, http.MethodPost, "users/login/code", req)
}

// LoginDevice begins a sign-in with a code that a user enters in the dashboard, on any device. It needs no session.
func (c *Client) LoginDevice(ctx context.Context, req LoginDeviceRequest) (LoginDevice, error) {
	return send[LoginDevice](ctx, c, http.MethodPost, "users/login/device", req)
}

// LoginDeviceToken returns a session once a user has entered the code. Until then the error is a fault whose detail is
// authorization_pending or slow_down, and the caller asks again after the interval, for slow_down one longer by 5 s.
// Afterwards the detail is expired_token or access_denied (RFC 8628, 3.5).
func (c *Client) LoginDeviceToken(ctx context.Context, req LoginDeviceTokenRequest) (LoginResponse, error) {
	return send[LoginResponse](ctx, c, http.MethodPost, "users/login/device/token", req)
}

// WaitingProgram returns who asks to be signed in with a code.
func (c *Client) WaitingProgram(ctx context.Context, code string) (WaitingProgram, error) {
	return get[WaitingProgram](ctx, c, "users/me/login-requests/"+seg(code))
}

// AnswerWaitingProgram signs in the program that asks with a code, or refuses it.
func (c *Client) AnswerWaitingProgram(ctx context.Context, code string, req AnswerWaitingProgramRequest) error {
	return c.do(ctx, http.MethodPost, "users/me/login-requests/"+seg(code), req, nil)
}

// CreateAPIKey creates another session of the user, as long-lived as one from a sign-in.
func (c *Client) CreateAPIKey(ctx context.Context, user string) (CreateTokenResponse, error) {
	return create[CreateTokenResponse](ctx, c, "users/"+seg(user)+"/keys", nil)
}

// APIKey returns a session or token by the public half of its token.
func (c *Client) APIKey(ctx context.Context, user, id string) (APIKey, error) {
	return get[APIKey](ctx, c, "users/"+seg(user)+"/keys/"+seg(id))
}

// ExpireAPIKey ends a session or token and keeps it in lists of expired ones.
func (c *Client) ExpireAPIKey(ctx context.Context, user, id string) error {
	return c.do(ctx, http.MethodPut, "users/"+seg(user)+"/keys/"+seg(id)+"/expire", nil, nil)
}

func (c *Client) DeleteAPIKey(ctx context.Context, user, id string) error {
	return c.do(ctx, http.MethodDelete, "users/"+seg(user)+"/keys/"+seg(id), nil, nil)
}

func (c *Client) GitSSHKey(ctx context.Context, user string) (GitSSHKey, error) {
	return get[GitSSHKey](ctx, c, "users/"+seg(user)+"/gitsshkey")
}

// RegenerateGitSSHKey replaces the user's key pair.
func (c *Client) RegenerateGitSSHKey(ctx context.Context, user string) (GitSSHKey, error) {
	return send[GitSSHKey](ctx, c, http.MethodPut, "users/"+seg(user)+"/gitsshkey", nil)
}

func page(q string, limit, offset int) string {
	v := url.Values{}
	if q != "" {
		v.Set("q", q)
	}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	if offset > 0 {
		v.Set("offset", strconv.Itoa(offset))
	}
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
}

type ValidatePasswordRequest struct {
	Password string `json:"password"`
}

type ValidatePasswordResponse struct {
	Valid   bool   `json:"valid"`
	Details string `json:"details"` // what is wrong with it, "" if nothing is
}

// UserAppearance is the look that a user has chosen for the dashboard, on every computer. Empty fields are no choice.
type UserAppearance struct {
	ThemePreference Theme        `json:"theme_preference"`
	TerminalFont    TerminalFont `json:"terminal_font"`
}

// UpdateUserAppearanceRequest changes what it names.
type UpdateUserAppearanceRequest struct {
	ThemePreference *Theme        `json:"theme_preference,omitempty"`
	TerminalFont    *TerminalFont `json:"terminal_font,omitempty"`
}

// UserPreferences are what a user has chosen for the dashboard, on every computer.
type UserPreferences struct {
	// TaskNotificationAlertDismissed is for dashboards of other servers of this API.
	TaskNotificationAlertDismissed bool `json:"task_notification_alert_dismissed"`
	// WorkspaceColumns are the columns of the list of workspaces; nil: the default ones.
	WorkspaceColumns *List[string]     `json:"workspace_columns,omitempty"`
	SavedSearches    List[SavedSearch] `json:"saved_searches"`
}

// SavedSearch is a search with a name.
type SavedSearch struct {
	Name  string `json:"name"`
	Query string `json:"query"`
	// Page is the list that it searches: users, audit or connectionlog; absent for workspaces.
	Page string `json:"page,omitempty"`
}

// UpdateUserPreferencesRequest changes the preferences that it names.
type UpdateUserPreferencesRequest struct {
	TaskNotificationAlertDismissed *bool              `json:"task_notification_alert_dismissed,omitempty"`
	WorkspaceColumns               *List[string]      `json:"workspace_columns,omitempty"`
	SavedSearches                  *List[SavedSearch] `json:"saved_searches,omitempty"`
}

// Apply returns the preferences after the change.
func (r UpdateUserPreferencesRequest) Apply(p UserPreferences) UserPreferences {
	if r.TaskNotificationAlertDismissed != nil {
		p.TaskNotificationAlertDismissed = *r.TaskNotificationAlertDismissed
	}
	if r.WorkspaceColumns != nil {
		p.WorkspaceColumns = r.WorkspaceColumns
	}
	if r.SavedSearches != nil {
		p.SavedSearches = *r.SavedSearches
	}
	return p
}
