package sdk

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// UserSSHKey is a public key with which a user signs in over SSH.
type UserSSHKey struct {
	ID          uuid.UUID  `json:"id"`
	Name        string     `json:"name"`
	Type        string     `json:"type"`        // such as ssh-ed25519
	Fingerprint string     `json:"fingerprint"` // SHA256:…, as ssh-keygen prints it
	PublicKey   string     `json:"public_key"`  // as in a file whose name ends in .pub, without a comment
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at"`   // nil: never
	LastUsedAt  *time.Time `json:"last_used_at"` // nil: never; to the minute
	// Regions are the names of the region proxies at whose SSH gateways the key may sign in.
	Regions List[string] `json:"regions"`
}

// CreateUserSSHKeyRequest adds a public key to the caller's account.
type CreateUserSSHKeyRequest struct {
	// PublicKey is the line of a file such as id_ed25519.pub. A private key is refused.
	PublicKey string        `json:"public_key"`
	Name      string        `json:"name,omitempty"`     // "": the key's comment if it can be a name, or one that the server makes
	Lifetime  time.Duration `json:"lifetime,omitempty"` // nanoseconds; 0: the longest that the deployment allows, without a limit forever
	// Regions are as in UserSSHKey. Nil: those that the deployment chooses for new keys, which are none unless it does.
	Regions []string `json:"regions,omitzero"`
}

// UpdateUserSSHKeyRequest changes at which regions a key may sign in.
type UpdateUserSSHKeyRequest struct {
	Regions []string `json:"regions"`
}

// UserSSHKeys lists a user's public SSH keys by name.
func (c *Client) UserSSHKeys(ctx context.Context, user string) ([]UserSSHKey, error) {
	return get[[]UserSSHKey](ctx, c, "users/"+seg(user)+"/ssh-keys")
}

func (c *Client) CreateUserSSHKey(ctx context.Context, user string, req CreateUserSSHKeyRequest) (UserSSHKey, error) {
	return send[UserSSHKey](ctx, c, http.MethodPost, "users/"+seg(user)+"/ssh-keys", req)
}

// UpdateUserSSHKey changes a key by its id.
func (c *Client) UpdateUserSSHKey(
	ctx context.Context, user string, id uuid.UUID, req UpdateUserSSHKeyRequest,
) (UserSSHKey, error) {
	return send[UserSSHKey](ctx, c, http.MethodPatch, "users/"+seg(user)+"/ssh-keys/"+id.String(), req)
}

// DeleteUserSSHKey removes a key by its id. It cannot be used from then on.
func (c *Client) DeleteUserSSHKey(ctx context.Context, user string, id uuid.UUID) error {
	return c.do(ctx, http.MethodDelete, "users/"+seg(user)+"/ssh-keys/"+id.String(), nil, nil)
}
