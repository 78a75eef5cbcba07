package sdk

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// UserSecret is a named value that a user's workspaces get, without the value, which a server never returns.
type UserSecret struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name"`
	Description string    `json:"description"`
	EnvName     string    `json:"env_name"`  // "": not an environment variable
	FilePath    string    `json:"file_path"` // "": not a file
	Enabled     bool      `json:"enabled"`   // workspaces get it
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
	// Unreadable reports that the server has lost the key that encrypts the value: no workspace gets it until it is set
	// again.
	Unreadable bool `json:"unreadable,omitempty"`
}

// CreateUserSecretRequest creates a secret. Without a variable and a file it is only kept.
type CreateUserSecretRequest struct {
	Name        string `json:"name"`
	Value       string `json:"value"`
	Description string `json:"description,omitempty"`
	EnvName     string `json:"env_name,omitempty"`
	FilePath    string `json:"file_path,omitempty"`
	Enabled     *bool  `json:"enabled,omitempty"` // nil: true
}

// CreateUserSecretsRequest creates several secrets, or none of them.
type CreateUserSecretsRequest struct {
	Secrets List[CreateUserSecretRequest] `json:"secrets"`
}

// UpdateUserSecretRequest changes the fields that are not nil.
type UpdateUserSecretRequest struct {
	Value       *string `json:"value,omitempty"`
	Description *string `json:"description,omitempty"`
	EnvName     *string `json:"env_name,omitempty"`
	FilePath    *string `json:"file_path,omitempty"`
	Enabled     *bool   `json:"enabled,omitempty"`
}

// UserSecrets lists a user's secrets by name.
func (c *Client) UserSecrets(ctx context.Context, user string) ([]UserSecret, error) {
	return get[[]UserSecret](ctx, c, "users/"+seg(user)+"/secrets")
}

func (c *Client) UserSecret(ctx context.Context, user, name string) (UserSecret, error) {
	return get[UserSecret](ctx, c, "users/"+seg(user)+"/secrets/"+seg(name))
}

func (c *Client) CreateUserSecret(ctx context.Context, user string, req CreateUserSecretRequest) (UserSecret, error) {
	return send[UserSecret](ctx, c, http.MethodPost, "users/"+seg(user)+"/secrets", req)
}

func (c *Client) CreateUserSecrets(
	ctx context.Context, user string, req CreateUserSecretsRequest,
) ([]UserSecret, error) {
	return send[[]UserSecret](ctx, c, http.MethodPost, "users/"+seg(user)+"/secrets/batch", req)
}

func (c *Client) UpdateUserSecret(
	ctx context.Context, user, name string, req UpdateUserSecretRequest,
) (UserSecret, error) {
	return send[UserSecret](ctx, c, http.MethodPatch, "users/"+seg(user)+"/secrets/"+seg(name), req)
}

func (c *Client) DeleteUserSecret(ctx context.Context, user, name string) error {
	return c.do(ctx, http.MethodDelete, "users/"+seg(user)+"/secrets/"+seg(name), nil, nil)
}
