package sdk

import (
	"context"
	"net/http"
)

// IdentityKeys are the keys that sign the ID tokens of workspaces and builds, by their ids in the issuer's key set.
type IdentityKeys struct {
	Issuer      string `json:"issuer"` // of the tokens: the deployment's access URL
	CurrentKey  string `json:"current_key"`
	NextKey     string `json:"next_key"`     // signs after the next rotation; verifiers know it already
	PreviousKey string `json:"previous_key"` // counts until the next rotation; "": none
}

// RotateIdentityKeysRequest makes the next key sign.
type RotateIdentityKeysRequest struct {
	// All replaces all keys: tokens that were issued before no longer count.
	All bool `json:"all,omitempty"`
}

// TemplateIdentity says for whom workspaces and builds of a template get ID tokens. Nil fields do not change.
type TemplateIdentity struct {
	// IdentityAudiences are those for which workspaces get ID tokens: at most 16 of printable ASCII without commas.
	// None: for no audience.
	IdentityAudiences *List[string] `json:"identity_audiences,omitempty"`
	// IdentityBuildAudience is that of the ID token that each build gets. "": builds get none.
	IdentityBuildAudience *string `json:"identity_build_audience,omitempty"`
}

// IdentityKeys returns the issuer of ID tokens and its keys.
func (c *Client) IdentityKeys(ctx context.Context) (IdentityKeys, error) {
	return get[IdentityKeys](ctx, c, "deployment/identity")
}

// RotateIdentityKeys makes the next key sign ID tokens.
func (c *Client) RotateIdentityKeys(ctx context.Context, req RotateIdentityKeysRequest) (IdentityKeys, error) {
	return send[IdentityKeys](ctx, c, http.MethodPost, "deployment/identity/rotate", req)
}
